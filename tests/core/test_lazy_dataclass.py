"""Dataclasses whose methods are made at their first use are those of the standard library in every other way."""

import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys
import threading
from collections.abc import Hashable
from dataclasses import field

import pytest

from mpijax.core.base.lazy_dataclass import dataclass


def classes(make, **options):
    """A base and a class below it, by one of the two decorators."""

    @make(**options)
    class Base:
        a: int
        b: list = field(default_factory=list, compare=False)

    @make(**options)
    class Derived(Base):
        """One with a docstring, a method and defaults."""

        c: float = 2.0
        d: str = field(default="d", repr=False)

        def __post_init__(self):
            object.__setattr__(self, "b", [*self.b, "post"])

        def total(self):
            return self.a + self.c

    return Base, Derived


OPTIONS = [
    {}, {"frozen": True}, {"eq": False}, {"frozen": True, "eq": False}, {"order": True}, {"unsafe_hash": True},
    {"repr": False}, {"frozen": True, "slots": True}, {"kw_only": True}, {"init": False}, {"match_args": False},
]  # fmt: skip


def outcome(f):
    try:
        return f()
    except Exception as e:
        return type(e), str(e)


def uses(base, derived):
    """Each a first use of the class, by name."""

    def one(**more):
        return derived(a=1, **more)

    def assigned(name):
        x = one()
        setattr(x, name, 3)
        return getattr(x, name)

    def deleted():
        x = one()
        del x.a

    return {
        "init": lambda: vars(one()) if hasattr(one(), "__dict__") else dataclasses.astuple(one()),
        "positional": lambda: derived(1, [], 3.0).total(),
        "repr": lambda: repr(one()).split(" at 0x")[0],
        "eq": lambda: (one() == one(b=[5]), one() == one(c=3.0), one() == 1, one() != one()),
        "order": lambda: one() < one(c=9.0),
        "hash": lambda: len({one(), one(b=[5])}),
        "hashable": lambda: (issubclass(derived, Hashable), issubclass(base, Hashable)),
        "assigned": lambda: assigned("a"),
        "another": lambda: assigned("other"),
        "deleted": deleted,
        "fields": lambda: [(f.name, f.type, f.repr, f.compare) for f in dataclasses.fields(derived)],
        "is_dataclass": lambda: (dataclasses.is_dataclass(derived), dataclasses.is_dataclass(int)),
        "replace": lambda: dataclasses.replace(one(), c=7.0).total(),
        "asdict": lambda: dataclasses.asdict(one()),
        "signature": lambda: str(inspect.signature(derived)),
        "match_args": lambda: derived.__match_args__,
        "defaults": lambda: (one().d, derived.c if not hasattr(derived, "__slots__") else None, hasattr(base, "b")),
        "params": lambda: derived.__dataclass_params__.frozen,
        "copy": lambda: copy.copy(one()).total(),
        "base first": lambda: repr(base(a=1)).split(" at 0x")[0],
        "missing": lambda: derived() is None,
        "unbound": lambda: derived.__eq__(one(), one()),
    }


@pytest.mark.sweep
@pytest.mark.parametrize("use", uses(None, None))
@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "-".join(o) or "plain")
def test_the_first_use_and_the_second_are_those_of_the_standard_library(options, use):
    mine, theirs = (uses(*classes(make, **options))[use] for make in (dataclass, dataclasses.dataclass))
    wanted = outcome(theirs)
    assert [outcome(mine), outcome(mine)] == [wanted, wanted]


@dataclass(frozen=True)
class Pickled:
    x: int
    y: tuple = ()


def test_pickled():
    assert pickle.loads(pickle.dumps(Pickled(1, (2,)))) == Pickled(1, (2,))


def test_matched():
    match Pickled(1, (2,)):
        case Pickled(x, y):
            assert (x, y) == (1, (2,))


def test_methods_of_a_class_itself_stay():
    @dataclass(frozen=True)
    class Own:
        x: int

        def __eq__(self, other):
            return "own"

        def __repr__(self):
            return "mine"

    assert repr(Own(1)) == "mine" and Own(1).__eq__(2) == "own" and Own(1).x == 1


def test_a_class_below_that_is_no_dataclass():
    @dataclass
    class Base:
        x: int

    class Below(Base):
        pass

    assert Below(3).x == 3 and Below(3) == Below(3) and dataclasses.is_dataclass(Below)


def test_a_class_below_that_calls_the_methods_above():
    @dataclass(frozen=True)
    class Base:
        x: int

    class Below(Base):
        def __init__(self):
            super().__init__(5)

        def __eq__(self, other):
            return super().__eq__(other)

        def __hash__(self):
            return 1 + super().__hash__()

    assert Below() == Below() and Below().x == 5 and hash(Below()) == 1 + hash((5,))
    with pytest.raises(dataclasses.FrozenInstanceError):
        Below().x = 3


def test_threads_that_use_a_class_first():
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(30):
            _, derived = classes(dataclass, frozen=True)
            start, found = threading.Barrier(4), []

            def use(derived=derived, start=start, found=found):
                start.wait()
                found.append((hash(derived(1)), derived(1) == derived(1), len(repr(derived(1)))))

            threads = [threading.Thread(target=use) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(found) == 4 and len(set(found)) == 1 and found[0][1]
    finally:
        sys.setswitchinterval(interval)


def test_an_import_makes_few_of_them():
    program = (
        "import dataclasses\nmade, make = [], dataclasses._process_class\n"
        "dataclasses._process_class = lambda cls, *args: made.append(cls) or make(cls, *args)\n"
        "import mpijax.numpy\nprint(len(made))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 60
