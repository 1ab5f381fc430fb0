def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="write the golden texts of the compiler anew")
