"""A notebook with a real kernel, for tests. Needs nbclient and ipykernel."""

import os
import signal
import sys
import threading


class Notebook:
    """A kernel that stays, and what a cell shows in it."""

    def __init__(self):
        import nbclient
        import nbformat

        self.book = nbformat.v4.new_notebook(metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}})
        self.client = nbclient.NotebookClient(self.book, timeout=120, allow_errors=True)

    def __enter__(self):
        self.client.create_kernel_manager()
        self.client.start_new_kernel(env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, sys.path))})
        self.client.start_new_kernel_client()
        return self

    def __exit__(self, *_):
        self.client._cleanup_kernel()

    def run(self, source):
        """The outputs of a new cell by kind: all text of streams, values, errors."""
        import nbformat

        cell = nbformat.v4.new_code_cell(source)
        self.book.cells.append(cell)
        self.client.execute_cell(cell, len(self.book.cells) - 1)
        return cell.outputs

    def interrupt_after(self, seconds):
        timer = threading.Timer(seconds, lambda: os.kill(self.client.km.provisioner.pid, signal.SIGINT))
        timer.start()
        return timer


def text(outputs, kind="stream"):
    if kind == "stream":
        return "".join(o["text"] for o in outputs if o["output_type"] == "stream")
    if kind == "error":
        return "\n".join("\n".join(o["traceback"]) for o in outputs if o["output_type"] == "error")
    return [o["data"]["text/plain"] for o in outputs if o["output_type"] in ("display_data", "execute_result")]
