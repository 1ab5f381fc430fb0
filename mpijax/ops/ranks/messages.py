"""Messages between two ranks: send, recv, sendrecv.

In reverse mode a cotangent returns to the sender of the value, and messages run in the opposite order: a rank that sent
a value receives the cotangent, and a rank that received a value sends one. The cotangent has the message's tag. A
receiver that accepted any tag uses tag 0, which is also the default of `send`.

Each message has a role. With it, the matching guard detects that only one rank differentiates its end of a message,
and reports can say what a rank waits for.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijax.core.base import provided
from mpijax.core.rules.lowering import Exchange
from mpijax.ops.ranks.ops import aval_of, exchange, has_tangent, rank_in
from mpijax.transforms.batching import batch_at
from mpijax.transforms.zeros import Zero, zeros

# Roles of messages: a value; a value whose derivative is also a message; that message, forward and backward.
VALUE, PRIMAL, TANGENT, COTANGENT = "value", "primal", "tangent", "cotangent"
DERIVATIVES = (TANGENT, COTANGENT)
# The suffixes of the operation's name in reports.
SHOWN = {PRIMAL: "(differentiated)", TANGENT: "(tangent)", COTANGENT: "(cotangent)"}

# The tag of halo exchanges. Both ends of such a message have it, so the message may use another transport than MPI.
HALO_TAG = 32719


def is_local(params: dict[str, Any]) -> bool:
    """Whether a sendrecv is from this rank to itself with matching tags: a copy. Starts MPI."""
    own = params["source"] == params["dest"] == rank_in(params["comm"])
    return own and (_any_tag(params["recvtag"]) or params["sendtag"] == params["recvtag"])


def _primal(role: str) -> str:
    """The role of a message whose derivative is taken."""
    return PRIMAL if role == VALUE else role


def _tangent(role: str) -> str:
    return COTANGENT if role == COTANGENT else TANGENT


def _any_tag(tag: int) -> bool:
    return tag < 0


def _sender(name: str, source: int) -> int:
    """The rank that receives the cotangent of a received value."""
    if source == provided.start().MPI.ANY_SOURCE:
        raise ValueError(
            f"{name} from MPI.ANY_SOURCE cannot be transposed: the cotangent must go back to the sender, which is "
            "unknown while tracing. Pass the source, or use jax.lax.stop_gradient on the received value."
        )
    return source


def _front(axis, args, dims) -> list[Any]:
    return [batch_at(x, d, 0, axis) for x, d in zip(args, dims, strict=True)]


# ---------------------------------------------------------------- send


def _send_derive(primals, tangents, *, role, **params):
    if not has_tangent(primals[0]):
        mpi_send_p.bind(primals[0], role=role, **params)
        return [], []
    mpi_send_p.bind(primals[0], role=_primal(role), **params)
    mpi_send_p.bind(tangents[0], role=_tangent(role), **params)
    return [], []


def _send_transpose(_cts, x, *, dest, tag, comm, role):
    template = zeros(aval_of(x))
    return [mpi_recv_p.bind(template, source=dest, tag=tag, comm=comm, status=None, role=COTANGENT)]


def _send_batch(axis, args, dims, **params):
    mpi_send_p.bind(*_front(axis, args, dims), **params)
    return [], []


mpi_send_p = exchange(
    "mpi_send",
    Exchange.SEND,
    type_rule=lambda x, **_: [],
    reference=lambda x, **_: [],
    derive=_send_derive,
    transpose=_send_transpose,
    batch=_send_batch,
    multiple_results=True,
)

# ---------------------------------------------------------------- recv


def _recv_derive(primals, tangents, *, status, role, **params):
    if not has_tangent(primals[0]):
        out = mpi_recv_p.bind(primals[0], status=status, role=role, **params)
        return out, Zero.of_primal(out)
    out = mpi_recv_p.bind(primals[0], status=status, role=_primal(role), **params)
    return out, mpi_recv_p.bind(tangents[0], status=None, role=_tangent(role), **params)


def _recv_transpose(ct, x, *, source, tag, comm, status, role):
    mpi_send_p.bind(ct, dest=_sender("recv", source), tag=0 if _any_tag(tag) else tag, comm=comm, role=COTANGENT)
    return [Zero(aval_of(x))]


def _recv_batch(axis, args, dims, **params):
    return mpi_recv_p.bind(*_front(axis, args, dims), **params), 0


# Of the operand, only the type matters, and whether it is linear.
mpi_recv_p = exchange(
    "mpi_recv",
    Exchange.RECV,
    type_rule=lambda x, **_: x,
    reference=lambda x, **_: np.asarray(x),
    derive=_recv_derive,
    transpose=_recv_transpose,
    batch=_recv_batch,
)

# ---------------------------------------------------------------- sendrecv


def _sendrecv_derive(primals, tangents, *, status, role, **params):
    sends, receives = map(has_tangent, primals)
    out = mpi_sendrecv_p.bind(*primals, status=status, role=_primal(role) if sends or receives else role, **params)
    if sends and receives:
        return out, mpi_sendrecv_p.bind(*tangents, status=None, role=_tangent(role), **params)
    more = {"comm": params["comm"], "role": _tangent(role)}
    if sends:
        mpi_send_p.bind(tangents[0], dest=params["dest"], tag=params["sendtag"], **more)
    if receives:
        return out, mpi_recv_p.bind(
            tangents[1], source=params["source"], tag=params["recvtag"], status=None, **more
        )
    return out, Zero.of_primal(out)


def _sendrecv_transpose(ct, sendbuf, recvbuf, *, source, dest, sendtag, recvtag, comm, status, role):
    """The cotangent comes from the rank that the value was sent to. Tags are those of `recv` and `send`."""
    open_tag = _any_tag(recvtag)
    back = mpi_sendrecv_p.bind(
        ct,
        zeros(aval_of(sendbuf)),
        source=dest,
        dest=_sender("sendrecv", source),
        sendtag=sendtag if open_tag else recvtag,
        recvtag=recvtag if open_tag else sendtag,
        comm=comm,
        status=None,
        role=COTANGENT,
    )
    return [back, Zero(aval_of(recvbuf))]


def _sendrecv_batch(axis, args, dims, **params):
    return mpi_sendrecv_p.bind(*_front(axis, args, dims), **params), 0


# Of the second operand, only the type matters. A receive from PROC_NULL gives zeros.
mpi_sendrecv_p = exchange(
    "mpi_sendrecv",
    Exchange.SENDRECV,
    type_rule=lambda sendbuf, recvbuf, **_: recvbuf,
    reference=lambda sendbuf, recvbuf, **_: np.asarray(recvbuf),
    derive=_sendrecv_derive,
    transpose=_sendrecv_transpose,
    batch=_sendrecv_batch,
)
