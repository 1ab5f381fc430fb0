"""Pytrees against JAX: structure, text, order of leaves, key paths, errors; and what only we promise."""

import collections
import copy
import dataclasses
import functools
import gc
import pickle
import weakref

import jax
import pytest
from jax import tree_util as oracle

from mpijax import tree as short
from mpijax import tree_util as ours
from mpijax.core.trees import tree

Point = collections.namedtuple("Point", "x y")
Other = collections.namedtuple("Other", "x y")


class Custom:
    """Registered without keys; two children, auxiliary data."""

    def __init__(self, a, b, tag="tag"):
        self.a, self.b, self.tag = a, b, tag

    def __eq__(self, other):
        return type(other) is Custom and vars(other) == vars(self)

    def __repr__(self):
        return f"Custom({self.a}, {self.b}, {self.tag})"


class Keyed:
    """Registered with keys by its methods."""

    def __init__(self, a):
        self.a = a

    def tree_flatten_with_keys(self):
        return ((ours.GetAttrKey("a"), self.a), ("free", 1)), None

    @classmethod
    def tree_unflatten(cls, data, children):
        return cls(children[0])

    def __eq__(self, other):
        return type(other) is Keyed and other.a == self.a


@dataclasses.dataclass
class Data:
    x: object
    y: object
    op: str = short.static(default="add")


@dataclasses.dataclass(frozen=True)
class Static:
    v: object


for library in (ours, oracle):
    library.register_pytree_node(
        Custom, lambda c: ((c.a, c.b), c.tag), lambda tag, children: Custom(*children, tag)
    )
    library.register_pytree_with_keys_class(Keyed)
    library.register_dataclass(Data)
    library.register_static(Static)


class SubList(list):
    pass


class SubDict(dict):
    pass


TREES = {
    "leaf": 1,
    "string": "s",
    "none": None,
    "empty tuple": (),
    "empty list": [],
    "empty dict": {},
    "one": (1,),
    "list of one": [1],
    "pair": (1, 2),
    "unsorted": {"b": 1, "a": [1, 2, None]},
    "integer keys": {3: (4,), 1: 2},
    "tuple keys": {(1, 2): 3, (0, 5): 4},
    "mixed numbers": {2: "two", 1.5: "less", True: "one"},
    "long dict": {f"k{i}": i for i in range(100)},
    "long list": list(range(100)),
    "long tuple": tuple((i,) for i in range(70)),
    "namedtuple": Point(1, Point(2, (3,))),
    "ordered": collections.OrderedDict([("b", 1), ("a", (2, 3))]),
    "default": collections.defaultdict(list, {"b": 1, "a": 2}),
    "no factory": collections.defaultdict(None, {}),
    "subclasses": [SubList([1]), SubDict(a=1), collections.deque([1])],
    "custom": Custom([1, 2], {"z": Custom(1, 2)}),
    "keyed": (Keyed((1, 2)), 3),
    "dataclass": [Data(1, (2, 3), op="mul")],
    "static": (Static(3), 1),
    "network": {f"layer{i}": {"w": i, "b": -i} for i in range(12)},
}
every_tree = pytest.mark.parametrize("tree_", TREES.values(), ids=TREES)
every_pair = pytest.mark.parametrize(
    "first, second", [(a, b) for a in TREES.values() for b in TREES.values() if a is not b]
)


def outcome(f):
    """The result, or class and text of the exception."""
    try:
        return f()
    except Exception as error:
        return type(error), str(error)


def shown(paths):
    """Key paths with the classes by name, so that ours compare with JAX's."""
    return [(repr(path), ours.keystr(path), leaf) for path, leaf in paths]


def describe(treedef):
    return repr(treedef), treedef.num_leaves, treedef.num_nodes, treedef.node_data()


# ---- structure -------------------------------------------------------------------------------------------


@every_tree
def test_flatten_as_jax(tree_):
    leaves, treedef = ours.tree_flatten(tree_)
    expected_leaves, expected = oracle.tree_flatten(tree_)
    assert leaves == expected_leaves
    assert describe(treedef) == describe(expected)
    assert [describe(c) for c in treedef.children()] == [describe(c) for c in expected.children()]


@every_tree
def test_round_trip(tree_):
    leaves, treedef = ours.tree_flatten(tree_)
    back = treedef.unflatten(iter(leaves))
    assert back == tree_ and type(back) is type(tree_)
    if type(tree_) is dict:
        assert list(back) == list(oracle.tree_unflatten(oracle.tree_structure(tree_), leaves))


@every_tree
def test_paths_as_jax(tree_):
    leaves, treedef = ours.tree_flatten_with_path(tree_)
    expected, _ = oracle.tree_flatten_with_path(tree_)
    assert [(str(p), leaf) for p, leaf in leaves] == [(str(p), leaf) for p, leaf in expected]
    assert shown(leaves) == [(repr(p), oracle.keystr(p), leaf) for p, leaf in expected]
    assert treedef == ours.tree_structure(tree_)


@every_tree
def test_equal_structures_are_equal_however_made(tree_):
    treedef = ours.tree_structure(tree_)
    rebuilt = ours.PyTreeDef.from_node_data_and_children(None, treedef.node_data(), treedef.children())
    copies = [rebuilt, pickle.loads(pickle.dumps(treedef)), copy.copy(treedef), copy.deepcopy(treedef)]
    for other in copies:
        assert other == treedef and not (other != treedef) and hash(other) == hash(treedef)
        assert repr(other) == repr(treedef) and other.unflatten(ours.tree_leaves(tree_)) == tree_


@every_pair
@pytest.mark.one_in(4)
def test_comparisons_as_jax(first, second):
    def equal(library):
        return library.tree_structure(first) == library.tree_structure(second)

    assert equal(ours) == equal(oracle)


@every_tree
def test_one_level_as_jax(tree_):
    def level(library):
        parts = outcome(lambda: library.flatten_one_level(tree_))
        return parts if isinstance(parts[0], type) else (list(parts[0]), parts[1])

    def level_with_keys(library):
        parts = outcome(lambda: library.flatten_one_level_with_keys(tree_))
        return parts if isinstance(parts[0], type) else (repr(list(parts[0])), parts[1])

    assert level(ours) == level(oracle)
    if not isinstance(tree_, Point):  # JAX gives each child the name of the first
        assert level_with_keys(ours) == level_with_keys(oracle)
    assert ours.is_tree_node(type(tree_)) == oracle.is_tree_node(type(tree_))
    assert ours.all_leaves([tree_]) == oracle.all_leaves([tree_])


IS_LEAF = {
    "tuples": lambda x: isinstance(x, tuple),
    "none": lambda x: x is None,
    "all": lambda x: True,
    "nothing": lambda x: False,
    "no answer": lambda x: None,
    "number": lambda x: 3,
    "fails": lambda x: [].missing,
}


@pytest.mark.parametrize("is_leaf", IS_LEAF.values(), ids=IS_LEAF)
@every_tree
@pytest.mark.one_in(4)
def test_is_leaf_as_jax(tree_, is_leaf):
    def flat(library):
        leaves, treedef = library.tree_flatten(tree_, is_leaf=is_leaf)
        return leaves, repr(treedef)

    def keyed(library):
        leaves, treedef = library.tree_flatten_with_path(tree_, is_leaf=is_leaf)
        return [(repr(path), leaf) for path, leaf in leaves], repr(treedef)

    assert outcome(lambda: flat(ours)) == outcome(lambda: flat(oracle))
    assert outcome(lambda: keyed(ours)) == outcome(lambda: keyed(oracle))


def test_is_leaf_takes_path():
    nested = {"a": [1, {"b": 2}], "c": 3}

    def flat(library):
        pairs, treedef = library.tree_flatten_with_path(nested, lambda path, x: len(path) == 2, True)
        return repr(pairs), repr(treedef)

    assert flat(ours) == flat(oracle)


def test_none_leaf_registry():
    leaves, treedef = tree.none_leaf_registry.flatten((1, None, [None]))
    assert leaves == [1, None, None] and treedef == ours.tree_structure((1, 2, [3]))
    assert pickle.loads(pickle.dumps(tree.none_leaf_registry)) is tree.none_leaf_registry


# ---- treedefs --------------------------------------------------------------------------------------------


@every_pair
@pytest.mark.one_in(4)
def test_flatten_up_to_as_jax(first, second):
    def up_to(library):
        return library.tree_structure(first).flatten_up_to(second)

    result, expected = outcome(lambda: up_to(ours)), outcome(lambda: up_to(oracle))
    if isinstance(expected, tuple) and "previous releases" in expected[1]:
        assert result[0] is ValueError and result[1].split("\n")[0] == expected[1].split("\n")[0]
    else:
        assert result == expected


PREFIXES = [
    ((1, (2, 3)), ([1, 2], ({"a": 1}, None))),
    ({"a": 1, "b": 2}, {"b": (1, 2), "a": []}),
    ({"a": 1}, {"b": 1}),
    ({"a": 1}, {"a": 1, "b": 2}),
    ({"a": {"b": 1}}, {"a": {"c": 1}}),
    ({1: 2, 3: 4}, {1: 2, "a": 1}),
    ((1, 2), (1,)),
    ([1, 2], [1]),
    ([1, 2], (1, 2)),
    ([(1, 2), 3], [(1,), 3]),
    ((1, None), (1, 2)),
    (Point(1, 2), Point(1, (2, 3))),
    (Point(1, 2), Other(1, 2)),
    (Point(1, 2), (1, 2)),
    (Custom(1, 2), Custom(1, 2, "other")),
    (Custom(1, 2), Custom((1, 2), 3)),
    (Data(1, 2), Data(1, [2], op="mul")),
    (collections.OrderedDict(a=1, b=2), collections.OrderedDict(b=1, a=2)),
    (collections.OrderedDict(a=1), collections.OrderedDict(a=1, b=2)),
    (collections.defaultdict(list, a=1), collections.defaultdict(int, a=1)),
    (5, {"a": (1, 2)}),
]


def without_custom_order(text):
    """Messages that show a set of keys do so in any order."""
    return sorted(word.strip("{},.") for word in str(text).split())


@pytest.mark.parametrize("first, second", PREFIXES)
def test_mismatches_as_jax(first, second):
    def add(*xs):
        return str(xs)

    for call in (
        lambda library: library.tree_map(add, first, second),
        lambda library: library.tree_broadcast(first, second),
        lambda library: library.tree_map_with_path(lambda path, *xs: str(xs), first, second),
        lambda library: library.tree_structure(first).flatten_up_to(second),
    ):
        result, expected = outcome(functools.partial(call, ours)), outcome(functools.partial(call, oracle))
        if (
            isinstance(expected, tuple)
            and expected[0] is ValueError
            and "previous releases" not in expected[1]
        ):
            assert result[0] is ValueError
            assert without_custom_order(result[1]) == without_custom_order(expected[1])
        elif not isinstance(expected, tuple):
            assert result == expected


@pytest.mark.parametrize("first, second", PREFIXES)
def test_error_lists_as_jax(first, second):
    from jax._src import tree_util as internal

    def prefix(library):
        return [without_custom_order(error("name")) for error in library.prefix_errors(first, second)]

    def equality(library):
        return [
            (ours.keystr(path), *map(without_custom_order, texts))
            for path, *texts in library.equality_errors(first, second)
        ]

    if isinstance(first, Point):
        return  # JAX gives each child the name of the first
    # JAX fails to list keys that are not of its own classes; there it has nothing to compare with.
    expected = outcome(lambda: prefix(internal))
    if isinstance(expected, list):
        assert prefix(tree) == expected
    expected = outcome(lambda: equality(internal))
    if isinstance(expected, list):
        assert equality(tree) == expected


@pytest.mark.parametrize("count", [0, 1, 3])
def test_wrong_number_of_leaves(count):
    def build(library):
        return library.tree_structure((1, 2)).unflatten([0] * count)

    assert outcome(lambda: build(ours)) == outcome(lambda: build(oracle))


def test_compose_walk_and_tuples():
    def text(library):
        s = library.tree_structure
        outer, inner = s((1, [2], None)), s({"a": 1, "b": Custom(1, 2)})
        return [
            repr(outer.compose(inner)),
            outer.compose(inner).num_leaves,
            repr(library.treedef_tuple([outer, inner])),
            repr(library.treedef_tuple([])),
            library.treedef_tuple([s(1), s([1, 2])]) == s((1, [1, 2])),
            library.treedef_is_leaf(s(1)),
            library.treedef_is_leaf(s(())),
            repr(library.treedef_children(outer)),
            inner.from_iterable_tree([5, [6, 7]]),
            outcome(lambda: inner.from_iterable_tree([5])),
            s((1, (2, {"k": 3}))).walk(lambda *n: ("node", *n), lambda x: ("leaf", x), [10, 20, 30]),
        ]

    assert text(ours) == text(oracle)
    assert ours.build_tree(ours.tree_structure({"b": 1, "a": (2, 3)}), [(1, 2), 3]) == {"a": (1, 2), "b": 3}
    assert ours.tree_structure(1).is_leaf and not ours.tree_structure(()).is_leaf


def test_treedefs_are_shared_and_keep_no_user_object_alive():
    params = TREES["network"]
    shuffled = dict(reversed(params.items()))
    assert ours.tree_structure(params) is ours.tree_structure(params)
    assert ours.tree_structure(shuffled) == ours.tree_structure(params)

    class Payload:
        pass

    payload = Payload()
    alive = weakref.ref(payload)
    ours.tree_flatten(
        [ours.Partial(functools.partial(max, payload), 1), Static(payload), Custom(1, 2, payload)]
    )
    del payload
    gc.collect()
    assert alive() is None


def test_sharing_distinguishes_equal_data():
    for tag in (1, True, 1.0):
        treedef = ours.tree_structure(Custom(1, 2, tag))
        assert type(treedef.unflatten([1, 2]).tag) is type(tag)
    assert [type(k) for k in ours.tree_structure({1: 0}).unflatten([0])] == [int]
    assert [type(k) for k in ours.tree_structure({True: 0}).unflatten([0])] == [bool]


def test_unhashable_data_still_has_a_structure():
    first, second = (ours.tree_structure(Custom(1, 2, [3])) for _ in range(2))
    assert first == second and hash(first) == hash(second)
    assert first != ours.tree_structure(Custom(1, 2, [4]))


def test_trees_that_change_while_flattened():
    class Meddler:
        pass

    shrinking = [Meddler(), *range(50)]
    ours.register_pytree_node(
        Meddler, lambda m: (shrinking.clear(), ((), None))[1], lambda data, xs: Meddler()
    )
    with pytest.raises(IndexError):
        ours.tree_flatten(shrinking)
    changing = {"a": Meddler(), "b": object(), "c": object()}
    kept = list(changing.values())[1:]

    class Emptier:
        pass

    ours.register_pytree_node(Emptier, lambda m: (changing.clear(), ((), None))[1], lambda data, xs: None)
    changing["a"] = Emptier()
    assert ours.tree_leaves(changing) == kept


def test_depth_ends_in_an_error():
    deep = []
    for _ in range(200_000):
        deep = [deep]
    with pytest.raises(RecursionError):
        ours.tree_leaves(deep)


def test_errors_release_what_they_hold():
    marker = object()
    import sys

    before = sys.getrefcount(marker)
    for _ in range(100):
        for bad in (
            {"a": marker, 1: marker},
            [marker, {"a": 1, 2: marker}],
            (marker, {"b": {1: marker, "c": 2}}),
        ):
            with pytest.raises(ValueError, match="Comparator raised exception while sorting"):
                ours.tree_flatten(bad)
    del bad
    gc.collect()
    assert sys.getrefcount(marker) == before


# ---- keys ------------------------------------------------------------------------------------------------

KEYS = [("DictKey", "a"), ("DictKey", 3), ("SequenceKey", 3), ("GetAttrKey", "n"), ("FlattenedIndexKey", 4)]


@pytest.mark.parametrize("name, value", KEYS)
def test_keys_as_jax(name, value):
    key, expected = getattr(ours, name)(value), getattr(oracle, name)(value)
    assert (repr(key), str(key), key.__match_args__) == (
        repr(expected),
        str(expected),
        expected.__match_args__,
    )
    field = key.__match_args__[0]
    assert getattr(key, field) == value and key == getattr(ours, name)(**{field: value})
    assert hash(key) == hash(pickle.loads(pickle.dumps(key))) and pickle.loads(pickle.dumps(key)) == key
    assert [getattr(ours, n)(v) == key for n, v in KEYS].count(True) == 1
    with pytest.raises(AttributeError):
        setattr(key, field, value)


@pytest.mark.parametrize(
    "options", [{}, {"separator": "/"}, {"simple": True}, {"simple": True, "separator": "/"}]
)
def test_keystr_as_jax(options):
    def text(library):
        return library.keystr(
            tuple(getattr(library, name)(value) for name, value in KEYS) + ("s",), **options
        )

    assert text(ours) == text(oracle)


# ---- registration ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("parts", [(1,), (1, None), [(1,), None], 3], ids=repr)
def test_bad_flatten_functions(parts):
    class Bad:
        pass

    def flatten(library):
        library.register_pytree_node(Bad, lambda b: parts, lambda data, xs: None)
        return library.tree_flatten(Bad())

    assert outcome(lambda: flatten(ours)) == outcome(lambda: flatten(oracle))


@pytest.mark.parametrize("parts", [((1, 2), None), (((1, 2),),)], ids=repr)
def test_bad_flatten_functions_with_keys(parts):
    class Bad:
        pass

    ours.register_pytree_with_keys(Bad, lambda b: parts, lambda data, xs: None, lambda b: ((2,), None))
    with pytest.raises(
        ValueError, match="to_iterable_with_keys function for a custom PyTree node should return"
    ):
        ours.tree_flatten_with_path(Bad())


@pytest.mark.parametrize("cls", [Custom, tuple, list, dict, type(None), collections.OrderedDict, Data])
def test_a_type_is_registered_once(cls):
    with pytest.raises(ValueError, match="Duplicate custom PyTreeDef type registration for"):
        ours.register_pytree_node(cls, lambda x: ((), None), lambda data, xs: None)


def test_registration_after_use_and_of_a_namedtuple():
    class Late:
        pass

    late = Late()
    assert ours.tree_leaves([late]) == [late]
    ours.register_pytree_node(Late, lambda x: ((1, 2), None), lambda data, xs: Late())
    assert ours.tree_leaves([late]) == [1, 2] and Late in tree.registered_types()
    Pair = collections.namedtuple("Pair", "x y")
    ours.register_pytree_node(Pair, lambda p: ((p.x,), p.y), lambda y, xs: Pair(xs[0], y))
    assert ours.tree_map(lambda x: -x, Pair(1, 2)) == Pair(-1, 2)


@pytest.mark.parametrize(
    "cls, fields",
    [
        (Data, (["x"], [])),
        (Data, (["x", "y", "op", "z"], [])),
        (Data, (["x"], None)),
        (int, ()),
        (object, (["a"], ["a"])),
    ],
)
def test_bad_dataclass_registrations(cls, fields):
    result = outcome(lambda: ours.register_dataclass(cls, *fields))
    expected = outcome(lambda: oracle.register_dataclass(cls, *fields))
    assert result[0] is expected[0] and without_custom_order(result[1]) == without_custom_order(expected[1])


def test_dataclass_drop_fields_and_plain_classes():
    @functools.partial(ours.register_dataclass, data_fields=["x"], meta_fields=[], drop_fields=["z"])
    @dataclasses.dataclass
    class Dropping:
        x: int
        z: int = 7

    class Plain:
        def __init__(self, *, a, b):
            self.a, self.b = a, b

    assert ours.tree_map(lambda v: v + 1, Dropping(1, z=3)) == Dropping(2, z=7)
    ours.register_dataclass(Plain, ["a"], ["b"])
    assert ours.tree_map(lambda v: v + 1, Plain(a=1, b="b")).__dict__ == {"a": 2, "b": "b"}


def test_partial():
    bound = functools.partial(max, 1)
    for make in (lambda lib: lib.Partial(max, 1, k=2), lambda lib: lib.Partial(bound, 2, 3)):
        mine, expected = make(ours), make(oracle)
        assert repr(mine).removeprefix("mpijax.") == repr(expected).removeprefix("jax.")  # Python 3.13 adds the module
        assert (mine.args, mine.keywords) == (expected.args, expected.keywords)
        leaves, treedef = ours.tree_flatten(mine)
        again = ours.tree_structure(make(ours))
        assert leaves == oracle.tree_leaves(expected)
        assert repr(treedef) == repr(oracle.tree_structure(expected))
        assert treedef == again and hash(treedef) == hash(again)
    nested = ours.Partial(ours.Partial(max, 1), 5)
    assert nested(2) == 5 and ours.tree_map(lambda x: 2 * x, nested)(3) == 10
    assert pickle.loads(pickle.dumps(ours.Partial(max, 1)))(4) == 4


# ---- maps and reductions ---------------------------------------------------------------------------------

CALLS = {
    "map": lambda t: t.map(lambda x, y: (x, y), {"a": 1, "b": [2, 3]}, {"a": 4, "b": ["x", (5,)]}),
    "map is_leaf": lambda t: t.map(lambda *x: x, (1, None), (1, 2), is_leaf=lambda x: x is None),
    "map_with_path": lambda t: t.map_with_path(lambda p, x, y: (str(p), x, y), Point(1, [2]), Point(3, [4])),
    "map_with_path of nothing": lambda t: t.map_with_path(lambda p, x, y: 0, {"a": ()}, {"a": ()}),
    "all": lambda t: (t.all([1, {"a": True}]), t.all((1, 0)), t.all([None])),
    "leaves": lambda t: t.leaves({"b": 1, "a": (2, None)}),
    "reduce": lambda t: t.reduce(lambda a, b: a - b, [1, (2, 3)]),
    "reduce initial": lambda t: t.reduce(lambda a, b: a - b, [1, (2, 3)], 10),
    "reduce initial None": lambda t: t.reduce(lambda a, b: (a, b), [1], None),
    "reduce nothing": lambda t: t.reduce(lambda a, b: a - b, ()),
    "reduce_associative": lambda t: t.reduce_associative(lambda a, b: f"({a}{b})", list("abcdefg")),
    "reduce_associative identity": lambda t: t.reduce_associative(lambda a, b: a + b, (), identity=4),
    "reduce_associative nothing": lambda t: t.reduce_associative(lambda a, b: a + b, ()),
    "transpose": lambda t: t.transpose(
        t.structure([1, 2]), t.structure({"a": 1, "b": 2}), [{"a": 1, "b": 2}] * 2
    ),
    "transpose inner None": lambda t: t.transpose(t.structure((1, 2)), None, ([1, 2, 3], [4, 5, 6])),
    "transpose mismatch": lambda t: t.transpose(t.structure((1, 2)), t.structure([1]), (1, 2, 3)),
    "broadcast": lambda t: t.broadcast((1, 2, 3), (0, {"a": 0, "b": 0}, (0, 0, None))),
    "broadcast is_leaf": lambda t: t.broadcast((1, None), (0, [0, 0]), is_leaf=lambda x: x is None),
    "leaves_with_path": lambda t: [(str(p), x) for p, x in t.leaves_with_path({"a": (1, None, Data(2, 3))})],
    "unflatten": lambda t: t.unflatten(t.structure({"b": 1, "a": (2,)}), (i for i in range(2))),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_short_names_as_jax(call):
    assert outcome(lambda: call(short)) == outcome(lambda: call(jax.tree))


def test_an_error_of_the_mapped_function_passes():
    with pytest.raises(ZeroDivisionError):
        ours.tree_map(lambda x, y: x / y, (1, 2), (1, 0))


def test_names():
    missing = {name for name in dir(oracle) if not name.startswith("_")} - set(dir(ours))
    assert not missing
    assert not {name for name in dir(jax.tree) if not name.startswith("_")} - set(dir(short))


# ---- specifications for the leaves of arguments ----------------------------------------------------------


@pytest.mark.parametrize(
    "spec, args",
    [
        (0, (1, {"a": 2})),
        ((0, None), (1, {"a": 2, "b": 3})),
        ((0, {"a": None, "b": 1}), (1, {"a": [2, 3], "b": 3})),
        ((0, 1), (1, 2, 3)),
        ([0, 1], (1, 2)),
        (({"a": 0},), ({"b": 1},)),
        ({"a": 0}, ({"a": 1},)),
    ],
)
@pytest.mark.parametrize("tupled_args", [False, True])
def test_flatten_axes_as_jax(spec, args, tupled_args):
    from jax._src.api_util import flatten_axes

    result = outcome(
        lambda: tree.flatten_axes("in_axes", ours.tree_structure(args), spec, tupled_args=tupled_args)
    )
    expected = outcome(
        lambda: flatten_axes("in_axes", oracle.tree_structure(args), spec, tupled_args=tupled_args)
    )
    if isinstance(expected, list):
        assert result == expected
    else:
        assert result[0] is expected[0]
        assert without_custom_order(result[1]) == without_custom_order(expected[1])


def test_flatten_axes_speaks_of_positional_arguments():
    with pytest.raises(
        ValueError, match=r"vmap in_axes specification must be a tree prefix(.|\n)*lengths of tuple"
    ):
        tree.flatten_axes("vmap in_axes", ours.tree_structure(((1, 2), {})), ((0, 1, 2), 0), kws=True)
