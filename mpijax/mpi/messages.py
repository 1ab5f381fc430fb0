"""Messages between two ranks of a communicator."""

from __future__ import annotations

from typing import Any

from mpijax.mpi.arguments import array, communicator, rank_argument, status_of, tag_argument
from mpijax.mpi.tokens import takes_no_token
from mpijax.ops.ranks.messages import VALUE, mpi_recv_p, mpi_send_p, mpi_sendrecv_p
from mpijax.runtime.mpi import mpi_start

__all__ = ["recv", "send", "sendrecv", "sendrecv_replace"]


def _nobody() -> int:
    return mpi_start.start().MPI.PROC_NULL


@takes_no_token
def send(x, dest, *, tag=0, comm=None) -> None:
    """Send `x` to one rank, which receives it with `recv` or `sendrecv`.

    Args:
      x: array.
      dest: the rank that receives; MPI.PROC_NULL sends nothing.
      tag: of the message.
      comm: a communicator of mpi4py; by default all ranks.

    Communicates one MPI_Send, which may block until the receiver arrives. In reverse mode the cotangent of `x` is
    received from `dest`, whose program must therefore be differentiated too.

    >>> from mpi4py import MPI
    >>> mpijax.mpi.send(jnp.array([1.0, 2.0]), dest=MPI.PROC_NULL)
    """
    x, comm = array(x, "send"), communicator(comm, "send")
    dest, tag = rank_argument(dest, comm, "send", "dest"), tag_argument(tag, "send", "tag")
    if dest != _nobody():
        mpi_send_p.bind(x, dest=dest, tag=tag, comm=comm, role=VALUE)


@takes_no_token
def recv(x, source=None, *, tag=None, comm=None, status=None):
    """Receive an array from one rank.

    Args:
      x: array with the shape and dtype of the message; its values are ignored.
      source: the rank that sends; by default any (MPI.ANY_SOURCE). For MPI.PROC_NULL the result is `x` itself.
      tag: of the message; by default any (MPI.ANY_TAG).
      comm: a communicator of mpi4py; by default all ranks.
      status: `MPI.Status` that each run fills in. With it, the message may be shorter than `x`; the rest is then zeros.

    Communicates one MPI_Recv. In reverse mode the cotangent of the result is sent to `source`, with the given tag (for
    any tag: 0, the default of `send`). Raises RuntimeError for a message of another length.

    >>> from mpi4py import MPI
    >>> request = MPI.COMM_SELF.Isend(np.array([1, 2], np.float32), dest=0)
    >>> mpijax.mpi.recv(jnp.zeros(2), source=0, comm=MPI.COMM_SELF), request.Wait()
    (Array([1., 2.], dtype=float32), True)
    """
    x, comm = array(x, "recv"), communicator(comm, "recv")
    source = _source(source, comm, "recv")
    tag, status = tag_argument(tag, "recv", "tag", may_be_any=True), status_of(status, "recv")
    if source == _nobody():
        return x
    return mpi_recv_p.bind(x, source=source, tag=tag, comm=comm, status=status, role=VALUE)


def _source(source: Any, comm, what: str) -> int:
    source = mpi_start.start().MPI.ANY_SOURCE if source is None else source
    return rank_argument(source, comm, what, "source", may_be_any=True)


@takes_no_token
def sendrecv(sendbuf, recvbuf, source, dest, *, sendtag=0, recvtag=None, comm=None, status=None):
    """Send one array and receive another, at the same time.

    Args:
      sendbuf: array to send.
      recvbuf: array with the shape and dtype of the received message. Its values are used only if `source` is
        MPI.PROC_NULL: it is then the result.
      source: the rank that sends to this one.
      dest: the rank that receives from this one; MPI.PROC_NULL sends nothing.
      sendtag, recvtag: tags of the messages; by default 0, and any.
      comm: a communicator of mpi4py; by default all ranks.
      status: `MPI.Status` of the received message, which each run fills in; with it the message may be shorter.

    Communicates one message each way. In reverse mode cotangents go back the same way.

    >>> mpijax.mpi.sendrecv(jnp.array([1.0, 2.0]), jnp.zeros(2), source=0, dest=0)
    Array([1., 2.], dtype=float32)
    """
    what = "sendrecv"
    sendbuf, recvbuf, comm = array(sendbuf, what), array(recvbuf, what), communicator(comm, what)
    source, dest = _source(source, comm, what), rank_argument(dest, comm, what, "dest")
    sendtag = tag_argument(sendtag, what, "sendtag")
    recvtag = tag_argument(recvtag, what, "recvtag", may_be_any=True)
    status = status_of(status, what)
    if source == _nobody():
        if dest != source:
            mpi_send_p.bind(sendbuf, dest=dest, tag=sendtag, comm=comm, role=VALUE)
        return recvbuf
    return mpi_sendrecv_p.bind(
        sendbuf, recvbuf, source=source, dest=dest, sendtag=sendtag, recvtag=recvtag, comm=comm, status=status,
        role=VALUE,
    )  # fmt: skip


def sendrecv_replace(x, source, dest, *, sendtag=0, recvtag=None, comm=None, status=None):
    """Send `x` and receive an array of the same shape and dtype instead; arguments as for `sendrecv`.

    >>> mpijax.mpi.sendrecv_replace(jnp.array([1.0, 2.0]), source=0, dest=0)
    Array([1., 2.], dtype=float32)
    """
    return sendrecv(x, x, source, dest, sendtag=sendtag, recvtag=recvtag, comm=comm, status=status)
