"""Values that change, as a library defines them: boxes, which hold a pytree, and logs, which collect what is added."""

from dataclasses import dataclass
from typing import Any

from mpijax import tree, typeof
from mpijax.core import Tracer
from mpijax.experimental import cur_qdd
from mpijax.experimental.hijax import AvalQDD, HiPrimitive, MutableHiType, Zero, aval_method, register_hitype
from mpijax.transforms.high_programs import FlatTree


def _leaf(x):
    return isinstance(x, Zero)


def lower_all(avals, values):
    return [part for aval, x in zip(avals, values, strict=True) for part in aval.lower_val(x)]


def raise_all(avals, parts):
    rest = iter(parts)
    return [aval.raise_val(*[next(rest) for _ in aval.lo_ty()]) for aval in avals]


# ---------------------------------------------------------------- boxes


@dataclass(frozen=True)
class BoxState:
    """The types of what is in a box."""

    leaf_avals: tuple
    treedef: Any

    def normalize(self):
        return BoxState(tuple(a.normalize() for a in self.leaf_avals), self.treedef)

    def to_tangent_qdd(self):
        return BoxState(tuple(a.to_tangent_aval() for a in self.leaf_avals), self.treedef)


class OfTracers(type):
    """A class of which traced values of its type are instances."""

    def __instancecheck__(cls, x):
        return super().__instancecheck__(x) or (isinstance(x, Tracer) and isinstance(typeof(x), cls.ty))


class BoxTy(MutableHiType):
    def __eq__(self, other):
        return isinstance(other, BoxTy)

    def __hash__(self):
        return hash(BoxTy)

    def str_short(self, short_dtypes=False, **_):
        return "BoxTy"

    __repr__ = str_short

    get = aval_method(lambda box: box_get(box))
    set = aval_method(lambda box, value: box_set(box, value))

    def lo_ty_qdd(self, known):
        return [part for aval in known.leaf_avals for part in aval.lo_ty()]

    def new_from_loval(self, known, *parts):
        return Box.holding(tree.unflatten(known.treedef, raise_all(known.leaf_avals, parts)))

    def read_loval(self, known, box):
        return lower_all(known.leaf_avals, tree.leaves(box._val))

    def update_from_loval(self, known, box, *parts):
        box._val = tree.unflatten(known.treedef, raise_all(known.leaf_avals, parts))

    def to_tangent_aval(self):
        return BoxTy()


class Box(metaclass=OfTracers):
    ty = BoxTy

    def __new__(cls, value=None):
        box = new_box()
        box.set(value)
        return box

    @classmethod
    def holding(cls, value):
        box = super().__new__(cls)
        box._val = value
        return box

    def get(self):
        return box_get(self)

    def set(self, value):
        box_set(self, value)

    def cur_qdd(self):
        leaves, treedef = tree.flatten(self._val)
        return BoxState(tuple(map(typeof, leaves)), treedef)


register_hitype(Box, lambda box: BoxTy())


class NewBox(HiPrimitive):
    def abstract_eval(self):
        return AvalQDD(BoxTy(), BoxState((), tree.structure(None))), set()

    def to_lojax(self):
        return Box.holding(None)


class BoxSet(HiPrimitive):
    multiple_results = True

    def abstract_eval(self, box, *avals, treedef):
        box.mutable_qdd.update(BoxState(avals, treedef))
        return [], set()

    def to_lojax(self, box, *leaves, treedef):
        box._val = tree.unflatten(treedef, leaves)
        return []

    def jvp(self, primals, tangents, *, treedef):
        if _leaf(tangents[0]):
            raise TypeError("a value with a derivative is set in a box without one: use stop_gradient")
        self.bind(*primals, treedef=treedef)
        self.bind(*tangents, treedef=treedef)
        return [], []


class BoxGet(HiPrimitive):
    multiple_results = True

    def abstract_eval(self, box, *, avals):
        return avals, set()

    def to_lojax(self, box, *, avals):
        return tree.leaves(box._val)

    def jvp(self, primals, tangents, *, avals):
        of_tangents = tuple(a.to_tangent_aval() for a in avals)
        return self.bind(*primals, avals=avals), self.bind(*tangents, avals=of_tangents)


new_box_p, box_set_p, box_get_p = NewBox("new_box"), BoxSet("box_set"), BoxGet("box_get")
new_box = new_box_p.bind


def box_get(box):
    known = cur_qdd(box)
    return tree.unflatten(known.treedef, box_get_p.bind(box, avals=known.leaf_avals))


def box_set(box, value):
    leaves, treedef = tree.flatten(value)
    box_set_p.bind(box, *leaves, treedef=treedef)


# ---------------------------------------------------------------- logs


class LogTy(MutableHiType):
    is_writer = True

    def __eq__(self, other):
        return isinstance(other, LogTy)

    def __hash__(self):
        return hash(LogTy)

    def str_short(self, short_dtypes=False, **_):
        return "Log"

    append = aval_method(lambda log, key, value: log_append(log, key, value))

    def to_tangent_aval(self):
        return LogTy()

    def lo_ty_qdd(self, _):
        return []

    def read_loval_in(self, _, log):
        return []

    def read_loval_out(self, _, log):
        return FlatTree.flatten(log._dct)

    def new_from_loval(self, _):
        return Log.holding()

    def update_from_loval2(self, _, log, values):
        for key, added in values.unflatten().items():
            log._dct.setdefault(key, []).extend(added)


class Log(metaclass=OfTracers):
    ty = LogTy

    def __new__(cls):
        return new_log_p.bind()

    @classmethod
    def holding(cls):
        log = super().__new__(cls)
        log._dct = {}
        return log

    def append(self, key, value):
        log_append(self, key, value)

    def cur_qdd(self):
        return ()


register_hitype(Log, lambda log: LogTy())


class NewLog(HiPrimitive):
    def abstract_eval(self):
        return AvalQDD(LogTy(), ()), set()

    def to_lojax(self):
        return Log.holding()


class LogAppend(HiPrimitive):
    multiple_results = True

    def abstract_eval(self, log, *avals, treedef, key):
        return [], set()

    def to_lojax(self, log, *leaves, treedef, key):
        log._dct.setdefault(key, []).append(tree.unflatten(treedef, leaves))
        return []


new_log_p, log_append_p = NewLog("new_log"), LogAppend("log_append")


def log_append(log, key, value):
    leaves, treedef = tree.flatten(value)
    log_append_p.bind(log, *leaves, treedef=treedef, key=key)
