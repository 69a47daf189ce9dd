"""The agent process: ``python -m mpca.agent.main``, a direct child of its executor's JVM.

The order of steps matters, since each protects the next. It moves the control pipe away from descriptors 0 and 1 (so that
`print` does no harm), asks the kernel to kill it when its parent dies, and makes its own process group (so that data workers
die with it). Only then it imports slow modules. It reads Start, calls the user's function, and sends Finished or Failed. At an
end of file it kills its group.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from typing import Any, NoReturn

from mpca.agent.process import die_with_parent, end_group, lead_own_group, move_control_pipe
from mpca.environment import environment

__all__ = ["main"]

_TRACEBACK_LIMIT = 64 << 10  # characters; a longer traceback (of a deep recursion) is cut in the middle
_EXIT_FAILED = 1
#: A socket's name has at most 107 bytes. Python's are pymp-xxxxxxxx/listener-xxxxxxxx in a folder for temporary files.
_FOLDER_LIMIT = 107 - len("/pymp-xxxxxxxx/listener-xxxxxxxx")


def _user_traceback(error: BaseException) -> str:
    """The traceback from the user's first frame on."""
    tb = error.__traceback__
    while tb is not None and tb.tb_frame.f_code.co_filename == __file__:
        tb = tb.tb_next
    text = "".join(traceback.format_exception(type(error), error, tb))
    if len(text) > _TRACEBACK_LIMIT:
        half = _TRACEBACK_LIMIT // 2
        text = f"{text[:half]}\n  ... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"
    return text


def _describe(error: BaseException) -> str:
    return "".join(traceback.format_exception_only(type(error), error)).strip()


def _advice(error: BaseException) -> str:
    """What to do about an error that torch.distributed raised; empty for all others."""
    modules = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
    if not modules or not modules[-1].startswith("torch.distributed"):
        return ""
    return "; agents need no process group: leave out init_process_group and DistributedDataParallel"


def _end_fork(error: BaseException | None) -> NoReturn:
    """End a process that the train function forked, and that came out of it: it speaks for no agent.

    Not by `sys.exit`: what is registered for the agent's end, such as the removal of its files, is not to be done here.
    """
    code = 1
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    elif error is not None:
        print(_user_traceback(error), end="", file=sys.stderr)
    else:
        print("mpca: a process that the train function forked returned from it: end it there by os._exit(0)", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _say_threads() -> None:
    """Name the threads for which the interpreter waits at its end."""
    names = [one.name for one in threading.enumerate() if one is not threading.main_thread() and not one.daemon]
    if names:
        print(
            f"mpca: the train function has returned, and its threads go on: {', '.join(names)}; they are killed in a few "
            "seconds: join them in the function, or make them daemons",
            file=sys.stderr,
            flush=True,
        )


def _say_long_folder() -> None:
    """Say that data workers will not start: the sockets of their queues lie in the folder for temporary files."""
    import tempfile

    folder = tempfile.gettempdir()
    if (length := len(os.fsencode(folder))) > _FOLDER_LIMIT:
        print(
            f"mpca: TMPDIR = {folder} has {length} bytes: in a folder of more than {_FOLDER_LIMIT}, Linux allows no socket as "
            "data workers need, and who waits for them waits for ever; export TMPDIR=/tmp, on YARN by spark.executorEnv.TMPDIR",
            file=sys.stderr,
            flush=True,
        )


def _load(payload: bytes) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    import cloudpickle

    try:
        function, args, kwargs = cloudpickle.loads(payload)
    except Exception as error:
        raise RuntimeError(
            f"the train function cannot be loaded here: {_describe(error)}; are the modules that it uses on this node?"
        ) from error
    return function, args, kwargs


def _packed(value: Any) -> bytes:
    from mpca.agent.returned import pack

    try:
        return pack(value)
    except (TypeError, ValueError) as error:
        raise type(error)(str(error)) from None  # with no frame of ours: the mistake is in the function's return


def _own_gpu(device: str) -> object:
    """Hide all GPUs but this agent's from this process; returns the GPU's lock."""
    from mpca.agent.gpus import candidates, take

    devices = candidates(device)
    if not devices:
        return None
    mine, lock = take(devices)
    os.environ["CUDA_VISIBLE_DEVICES"] = mine  # torch reads it when it first uses CUDA
    return lock


def _run(payload: bytes, seed: int, threads: int, device: str) -> bytes:
    import torch

    from mpca.agent.cuda import device_of, make_current
    from mpca.agent.lazy_dynamo import put_off_dynamo
    from mpca.agent.seeds import seed_everything

    put_off_dynamo()
    torch.set_num_threads(threads)
    make_current(device_of(device))
    seed_everything(seed)  # equal in all agents, so that they make the same x_0; `attach` then seeds each agent anew
    function, args, kwargs = _load(payload)
    return _packed(function(*args, **kwargs))


def main() -> int:
    """Run an agent; returns the exit code."""
    read_fd, write_fd = move_control_pipe()
    die_with_parent(read_fd)
    lead_own_group()

    import faulthandler

    from mpca.agent.link import Link, LinkClosed
    from mpca.wire.messages import Start

    faulthandler.enable()  # a crash in native code leaves a traceback in the tail of the output
    link = Link(read_fd, write_fd)
    try:
        (start,) = link.receive(None)
    except LinkClosed:
        if rank := environment("LOCAL_RANK"):  # no executor sets it: Lightning's DDP starts the program of its process again
            print(
                f"mpca: a trainer inside of an agent has started its process {rank} of several; each agent is one: leave out "
                "strategy='ddp', devices and launchers, and see docs/trainers.md",
                file=sys.stderr,
                flush=True,
            )
        end_group()
    assert isinstance(start, Start)
    # Before torch and numpy are imported: their thread pools read these once.
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(start.threads)

    from mpca.agent.context import AgentContext, enter
    from mpca.timeouts import THREADS_END_S

    _say_long_folder()
    context = AgentContext.make(start, link)
    enter(context)
    os.register_at_fork(after_in_child=link.cut_off)
    try:
        context.loop.stall.begin()
        context.gpu = _own_gpu(start.device)
        try:
            returns = _run(start.payload, start.seed, start.threads, start.device)
        except SystemExit as end:
            if link.cut or end.code not in (None, 0):
                raise
            returns = _packed(None)  # it left early, and without a complaint
        else:
            if link.cut:
                _end_fork(None)
            context.check_begun()
        sys.stdout.flush()
        context.loop.leave(returns)
    except BaseException as error:  # SystemExit too: an agent that exits early reports it
        if link.cut:
            _end_fork(error)
        sys.stdout.flush()
        context.loop.fail(_describe(error) + _advice(error), _user_traceback(error))
        return _EXIT_FAILED
    finally:
        last = threading.Timer(THREADS_END_S, _say_threads)
        last.daemon = True
        last.start()
    return 0


if __name__ == "__main__":
    sys.exit(main())
