"""Makes ``wire/*.json``: the bytes that Java and Python must both write and read. Run it by hand when a format changes.

It uses msgpack and struct alone, neither `mpca.wire.codec` nor `mpca.wire.slots`, so that a mistake there is not copied
into the bytes that it is tested with. In the JSON files bytes are hex; a value that is bytes is ``{"hex": "..."}``.

``messages.json``: every message, as a whole frame. ``bad_frames.json``: what a reader must refuse, with the reason in words.
``slots.json``: slot headers. ``orders.json``: packed orders and an answer. ``events.json``: what the JVM tells the driver.
``sums.json``: weighted sums, as numpy adds them. ``codecs.json``: chunks as codecs write and read them, by scalar arithmetic.
``encoded.json``: whole shards, of `numbers` rather than of hex, as differences from a base, chunk by chunk.
"""

from __future__ import annotations

import json
import struct
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any
from zlib import crc32

import msgpack
import numpy as np

HERE = Path(__file__).parent / "wire"


def plain(value: Any) -> Any:
    """JSON form of a value."""
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [plain(one) for one in value]
    return value


def framed(body: bytes) -> str:
    return (struct.pack(">I", len(body)) + body).hex()


def message(name: str, code: int, **fields: Any) -> dict[str, Any]:
    body = msgpack.packb([code, fields], use_bin_type=True)
    return {"name": name, "code": code, "fields": plain(fields), "frame": framed(body)}


MESSAGES = [
    message(
        "Start",
        1,
        agent=3,
        incarnation=1,
        agents=4,
        run="digits-20260102",
        seed=1 << 40,
        shards=3,
        layer_aligned=False,
        method={"name": "mpca", "phases": 3, "alpha_decay": 0.7},
        task="train",
        payload=bytes(range(256)),
        device="cuda:0",
        threads=2,
        conf={"data": {"name": "digits", "batch_size": 64, "max_bad_fraction": 0.001}},
        state={"url": "hdfs://cluster/runs/é/3.state", "bytes": (1 << 33) + 1, "sha256": "9f" * 32},
    ),
    message("Begin", 2),
    message("SnapshotRequest", 3, cycle=41, shard=2),
    message("SnapshotRequest", 3, cycle=-3, shard=0),
    message("SnapshotRequest", 3, cycle=70000, shard=127),
    message("Install", 4, shard=1, version=14, mode="install", alpha=0.025),
    message("Install", 4, shard=128, version=(1 << 33) + 1, mode="replace", alpha=0.0),
    message("Cut", 8, shards=6),
    message("Cut", 8, shards=128),
    message("SaveState", 9, number=70000),
    message("StateTaken", 10, number=70000),
    message("Stop", 5, reason="objective reached: Fehler ≤ 2,5 %"),
    message(
        "ReadersChanged",
        6,
        version=3,
        readers={"agents": 2, "since": [[0, 4], [1, 7]], "losses": [[1, 5, 70000, 6]], "before": []},
    ),
    message("Fetched", 7, number=70000, bytes=3670016, error="", text=""),
    message(
        "Fetched",
        7,
        number=70001,
        bytes=0,
        error="java.io.FileNotFoundException",
        text="File does not exist: /data/é.tar",
    ),
    message(
        "Hello",
        17,
        agent=3,
        incarnation=1,
        pid=4194303,
        python="3.11.9",
        torch="2.4.0",
        mpca="0.1.0",
        x0_hash="9f" * 32,
        layout=[["conv.weight", [8, 1, 3, 3], "parameter", 0], ["norm.running_mean", [8], "buffer", 72]],
        local={"norm.num_batches_tracked": ["int64", [], 8]},
        tied={"head.weight": "conv.weight"},
        bounds=[0, 26, 53, 80, 84],
        parameters=72,
        segment_fd=11,
        segment_bytes=20480,
        slots=[0, 4096, 8192, 12288, 16384],
    ),
    message("Snapshot", 18, cycle=41, shard=2, updates=130, start=86400.25, end=86400.5),
    message("Installed", 19, shard=1, version=14, mode="install", start=86401.0, end=86401.125),
    message(
        "Progress",
        20,
        steps=65536,
        samples=4294967296,
        train_s=12.5,
        pause_s=0.0078125,
        metrics={"loss": 0.25},
        data=[4, 70000, 5],
        function="returned",
        bad=[["train-000000.tar:n01/é.JPEG at 512", "wrong checksum"]],
        bad_dropped=70000,
    ),
    message("Finished", 21, returns=b"\x80\x05N."),
    message("Files", 23, pid=4194303, requests_fd=12, answers_fd=15, memory_fd=16, memory_bytes=4194304),
    message("Fetch", 24, number=70000, url="hdfs://cluster/data/é.tar", offset=(1 << 33) + 1, bytes=3670016),
    message("Exchange", 25, number=70000, shard=2, updates=130, version=(1 << 33) + 1, start=86400.25, end=86400.5),
    message("StateSaved", 26, number=70000, fd=17, bytes=(1 << 33) + 1, sha256="9f" * 32, error=""),
    message("StateSaved", 26, number=70001, fd=-1, bytes=0, sha256="", error="TypeError: cannot pickle é"),
    message("Failed", 22, error="ValueError: x", traceback="Traceback (most recent call last):\n" + "  é" * 40),
]


def bad(name: str, why: str, data: bytes) -> dict[str, str]:
    return {"name": name, "why": why, "bytes": data.hex()}


def body(value: Any) -> bytes:
    packed = msgpack.packb(value, use_bin_type=True)
    return struct.pack(">I", len(packed)) + packed


def nested(levels: int) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


BAD_FRAMES = [
    bad("too_long", "declared length is over 64 MiB", struct.pack(">I", (64 << 20) + 1)),
    bad("cut_length", "stream ends inside the length", b"\x00\x00"),
    bad("cut_body", "stream ends inside the body", body([2, {}])[:-1]),
    bad("empty", "a body of no bytes", struct.pack(">I", 0)),
    bad("not_msgpack", "the reserved byte 0xc1", struct.pack(">I", 1) + b"\xc1"),
    bad("two_values", "bytes after the value", struct.pack(">I", 4) + msgpack.packb([2, {}]) + b"\x00"),
    bad("not_a_pair", "three elements", body([2, {}, 0])),
    bad("unknown_code", "code 99", body([99, {}])),
    bad("missing_field", "Snapshot without its end", body([18, {"cycle": 1, "shard": 0, "updates": 1, "start": 0.0}])),
    bad("foreign_field", "Begin with a field", body([2, {"cycle": 1}])),
    bad("lying_size", "an array of 2^32 - 1 elements in five bytes", struct.pack(">I", 5) + b"\xdd\xff\xff\xff\xff"),
    bad("deep", "200 lists inside one another", body(nested(200))),
    bad("extension", "an extension type", body([2, msgpack.ExtType(1, b"x")])),
]

HEADER = struct.Struct("<IHHQQQQI20x")


def header(shard: int, seq: int, version: int, updates: int, length: int, mode: int) -> dict[str, Any]:
    fields = {"shard": shard, "seq": seq, "version": version, "updates": updates, "length": length, "mode": mode}
    return {"fields": fields, "bytes": HEADER.pack(0x4C53504D, 1, shard, seq, version, updates, length, mode).hex()}


SLOTS = {
    "good": [
        header(0, 0, 0, 0, 0, 0),
        header(2, 8, 41, 130, 104, 0),
        header(65535, (1 << 62) + 2, (1 << 40) + 1, 1 << 33, 2147483640, 1),
        header(1, 7, 14, 0, 108, 2),
    ],
    "bad": [
        {"why": "another magic", "bytes": HEADER.pack(0x4C53504E, 1, 0, 0, 0, 0, 0, 0).hex()},
        {"why": "another layout", "bytes": HEADER.pack(0x4C53504D, 2, 0, 0, 0, 0, 0, 0).hex()},
        {"why": "never written", "bytes": bytes(64).hex()},
    ],
}

EMPTY_ORDER = {
    "order": 1,
    "run": "digits",
    "term": 0,
    "cycle": -1,
    "deadline": 86430.5,
    "executors": ["0", "2"],
    "description": "",
    "begin": [],
    "stop": [],
    "forget_cycle": -(1 << 30),
    "forget_broadcasts": [],
    "downloads": [],
    "reduce": None,
    "freeze": None,
    "readers": None,
    "cut": None,
    "save": None,
    "carried": [],
    "bases": [],
}
FULL_ORDER = {
    "order": 70001,
    "run": "digits",
    "term": 2,
    "cycle": 41,
    "deadline": 86430.5,
    "executors": ["0", "2"],
    "description": "cycle 41: reduce shard 2",
    "begin": [["0", 0, 1], ["2", 3, 0]],
    "stop": [["2", 3, 0, "objective reached"]],
    "forget_cycle": 39,
    "forget_broadcasts": [12, 1 << 35],
    "downloads": [
        {
            "broadcast": 13,
            "shard": 0,
            "version": 13,
            "mode": "install",
            "length": 104,
            "agents": [["0", 0, 1], ["2", 3, 0]],
            "alpha": 0.025,
            "coded": {"codec": "int8", "version": 12, "crc": 3735928559, "parameters": 25, "length": 104},
            "result": 3405691582,
        }
    ],
    "reduce": {
        "cycle": 41,
        "shard": 2,
        "length": 108,
        "parts": [{"executor": "0", "weight": 131.0}, {"executor": "2", "weight": 120.0}],
        "coded": {"codec": "int8", "version": 11, "crc": 7, "parameters": 27, "length": 108},
        "after": 38,
    },
    "freeze": {
        "cycle": 42,
        "shard": 0,
        "agents": [["0", 0, 1], ["2", 3, 0]],
        "weights": "updates",
        "coded": {"codec": "int8", "version": 12, "crc": 3735928559, "parameters": 25, "length": 104},
        "rests": "carried",
    },
    "readers": {
        "version": 3,
        "readers": {"agents": 4, "since": [[0, 4], [3, 7]], "losses": [[3, 5, 70000, 6]], "before": []},
        "agents": [["0", 0, 1]],
    },
    "cut": {"shards": 6, "agents": [["0", 0, 1], ["2", 3, 0]]},
    "save": {
        "number": 70000,
        "agents": [["0", 0, 1], ["2", 3, 0]],
        "urls": ["hdfs://cluster/runs/é/0.state", "hdfs://cluster/runs/é/3.state"],
    },
    "carried": [["0", 39], ["2", 36]],
    "bases": [[1, 12, 3735928559, 104]],
}
ANSWER = {
    "executor": "2",
    "host": "node-2",
    "frozen": [
        {
            "agent": 3,
            "incarnation": 0,
            "tau": 120,
            "crc": 3735928559,
            "finite": True,
            "distance": 0.375,
            "start": 86400.25,
            "end": 86400.5,
        }
    ],
    "late": {
        4: [1, "no such incarnation"],
        5: [2, "no answer before the deadline"],
        6: [3, "ended before it handed over"],
        7: [4, "its cycle was forgotten"],
        8: [5, "an older attempt of the driver"],
        9: [6, "its executor waits for the base of the codec"],
    },
    "weight": 120.0,
    "reduce_start": 86400.0,
    "reduce_end": 86401.5,
    "bytes_in": 54,
    "bytes_out": 4294967350,
}


def packed(name: str, value: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "fields": plain(value), "bytes": msgpack.packb(value, use_bin_type=True).hex()}


def event(kind: str, **fields: Any) -> dict[str, Any]:
    return packed(kind, {"kind": kind, **fields})


def fields_of(name: str) -> dict[str, Any]:
    """Of a golden message."""
    body = bytes.fromhex(next(one["frame"] for one in MESSAGES if one["name"] == name))[4:]
    fields: dict[str, Any] = msgpack.unpackb(body)[1]
    return fields


EVENTS = [
    event("ExecutorReady", executor="2", host="node-2", cores=4),
    event("ExecutorLost", executor="2", reason="Command exited with code 137"),
    event("AgentHello", executor="2", host="node-2", hello=fields_of("Hello")),
    event("AgentDied", executor="2", agent=3, incarnation=1, pid=4194303, exit_code=139, tail="é\nSegmentation fault"),
    event(
        "AgentFailedEvent",
        executor="2",
        host="node-2",
        agent=3,
        incarnation=1,
        error="ValueError: x",
        traceback="Traceback (most recent call last):\n  é",
    ),
    event("AgentFinished", executor="2", agent=3, incarnation=1, returns=b"\x80\x05N."),
    event("AgentProgress", agent=3, incarnation=1, **fields_of("Progress"), data_read=(1 << 33) + 1, data_remote=70000),
    event("AgentBack", executor="2", agent=3, incarnation=1),
    event("Output", agent=3, incarnation=1, lines=["Fehler ≤ 2,5 %", ""]),
    event(
        "Acknowledged",
        broadcast=70000,
        executor="2",
        agent=3,
        incarnation=1,
        start=86400.25,
        end=86400.5,
        bytes_in=(1 << 33) + 1,
        from_driver=104,
    ),
    event(
        "OrderDone",
        order=70001,
        answers=[msgpack.packb(ANSWER, use_bin_type=True)],
        start=86400.25,
        end=86401.5,
        driver_in=(1 << 33) + 1,
    ),
    event("OrderFailed", order=70001, executor="2", reason="a wrong checksum", unfinished=["0", "2"], damages=True),
    event("OrderFailed", order=70002, executor=None, reason="cancelled", unfinished=[], damages=False),
    event("ExecutorDamages", executor="2", reason="a piece of a broadcast"),
    event(
        "ExchangeArrived",
        executor="2",
        agent=3,
        incarnation=1,
        number=70000,
        shard=2,
        updates=130,
        version=(1 << 33) + 1,
        length=104,
        crc=3735928559,
        finite=True,
        start=86400.25,
        asked=86400.5,
        arrived=86401.5,
    ),
    event(
        "AgentSaved",
        executor="2",
        agent=3,
        incarnation=1,
        number=70000,
        bytes=(1 << 33) + 1,
        sha256="9f" * 32,
        seconds=12.5,
        error="",
    ),
    event(
        "AgentSaved",
        executor="2",
        agent=3,
        incarnation=1,
        number=70001,
        bytes=0,
        sha256="",
        seconds=0.0,
        error="TypeError: cannot pickle é",
    ),
    event("HoldEnded", agent=3, incarnation=1, reason="executor 2 is gone"),
    event("AgentsFound", executor="2", agents=[{"agent": 3, "incarnation": 1, "pid": 4194303}]),
]


def weighted_sum(weights: list[float], elements: int) -> dict[str, Any]:
    """acc = float32(acc + w * float64(part)), in the order given, over elements of all magnitudes."""
    rng = np.random.default_rng(len(weights))
    scale = 10.0 ** rng.integers(-44, 37, elements)  # from below the normal numbers up
    parts = [(rng.standard_normal(elements) * scale).astype(np.float32) for _ in weights]
    total = np.zeros(elements, np.float32)
    for weight, part in zip(weights, parts, strict=True):
        total = (total.astype(np.float64) + np.float64(weight) * part.astype(np.float64)).astype(np.float32)
    hexes = [part.astype("<f4").tobytes().hex() for part in parts]
    return {"weights": weights, "parts": hexes, "sum": total.astype("<f4").tobytes().hex()}


def single(value: float | Fraction) -> float:
    """Rounded to float32 by C and not by numpy."""
    rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return rounded


def bits(value: float) -> int:
    found: int = struct.unpack("<I", struct.pack("<f", value))[0]
    return found


def bf16(value: float) -> int:
    """The nearest of the numbers with eight significant bits; of two that are as near, the one with the even pattern."""
    down = bits(value) >> 16
    pair = [down, down + 1] if (down + 1) & 0x7FFF < 0x7F80 else [down]
    distance = [abs(Fraction(value) - Fraction(struct.unpack("<f", struct.pack("<I", one << 16))[0])) for one in pair]
    return min(zip(distance, (one % 2 for one in pair), pair, strict=True))[2]


def scale_of(block: list[float], most: int) -> float:
    """The smallest number of 17 significant bits that is at least the largest magnitude over `most`, in float32."""
    quotient = single(Fraction(max(abs(one) for one in block)) / most)
    pattern = -(-bits(quotient) // 128) * 128
    scale: float = struct.unpack("<f", struct.pack("<I", pattern))[0]
    if Fraction(scale) * most > Fraction(float(np.finfo(np.float32).max)):
        scale = struct.unpack("<f", struct.pack("<I", pattern - 128))[0]
    return scale if scale >= 2.0**-126 else 0.0


def chunk(codec: str, name: str, values: list[float], parameters: int) -> dict[str, Any]:
    """Of float32 values; the first `parameters` are parameters."""
    coded, buffers = values[:parameters], values[parameters:]
    if codec == "bf16":
        patterns = [bf16(one) for one in coded]
        body = b"".join(struct.pack("<H", one) for one in patterns)
        decoded = [struct.unpack("<f", struct.pack("<I", one << 16))[0] for one in patterns]
    else:
        most = {"int8": 127, "int4": 7}[codec]
        blocks = [coded[at : at + 256] for at in range(0, parameters, 256)]
        scales = [scale_of(block, most) for block in blocks]
        codes = [
            round(Fraction(float(np.float64(one) / np.float64(scale)))) if scale else 0  # Python rounds half to even
            for block, scale in zip(blocks, scales, strict=True)
            for one in block
        ]
        decoded = [code * scales[i // 256] for i, code in enumerate(codes)]
        body = b"".join(struct.pack("<f", one) for one in scales)
        if codec == "int4":
            pairs = zip(codes[::2], [*codes[1::2], 0], strict=False)
            body += bytes(low & 15 | (high & 15) << 4 for low, high in pairs)
        else:
            body += struct.pack(f"{parameters}b", *codes)
    packed = {key: struct.pack(f"<{len(some)}f", *some) for key, some in (("b", buffers), ("v", values), ("d", decoded))}
    return {
        "name": name,
        "codec": codec,
        "parameters": parameters,
        "values": packed["v"].hex(),
        "bytes": (body + packed["b"]).hex(),
        "decoded": (packed["d"] + packed["b"]).hex(),
    }


def chunks() -> list[dict[str, Any]]:
    rng = np.random.default_rng(15)
    largest = float(np.finfo(np.float32).max)
    tiny = 2.0**-149
    cases = {
        "nothing": ([], 0),
        "one": ([-0.3], 1),
        "zeros of both signs": ([0.0, -0.0, 0.0], 3),
        "halves": ([127.0, 0.5, 1.5, 2.5, -0.5, -1.5, 126.5, 7.0, 3.5, -63.5], 10),
        "halves of bf16": ([1 + 2.0**-8, 1 + 3 * 2.0**-8, -1 - 2.0**-8, 1 + 2.0**-8 + 2.0**-20, 255.5, 256.5], 6),
        "halves of int4": ([7.0, 0.5, 1.5, 2.5, -2.5, -6.5, 6.5], 7),
        "the end of the range": ([largest, -largest, largest / 2, 3.3961775e38], 4),
        "denormals": ([tiny, -3 * tiny, 2.0**-127, 1e-39], 4),
        "smallest scale": ([127 * 2.0**-126, 2.0**-126, 7 * 2.0**-126], 3),
        "below the smallest scale": ([1.49e-36, -8.2e-38], 2),
        "buffers alone": ([float("inf"), float("nan"), -0.0, 1e-45], 0),
        "parameters and buffers": ([1.0, -2.0, 3.0, 0.1, 1e30], 3),
    }
    for parameters, buffers in ((255, 0), (256, 1), (257, 0), (600, 9)):
        spread = 10.0 ** rng.integers(-9, 4, parameters + buffers)
        values = (rng.standard_normal(parameters + buffers) * spread).astype(np.float32)
        cases[f"{parameters} parameters, {buffers} buffers"] = ([float(one) for one in values], parameters)
    floats = {name: ([single(one) for one in values], parameters) for name, (values, parameters) in cases.items()}
    return [chunk(codec, name, *case) for codec in ("bf16", "int8", "int4") for name, case in floats.items()]


def numbers(seed: int, count: int) -> list[float]:
    """Vectors that every language makes alike, exactly: 15 bits each, of 24 magnitudes."""
    return [((i * 7919 + seed * 104729) % 20011 - 10005) * 2.0 ** -(8 + i // (70 + seed) % 24) for i in range(count)]


def cut(elements: int, executors: int, most: int) -> list[int]:
    """Edges of chunks in elements, as ``org.mpca.reduce.ChunkPlan`` has them: eight a range, of at least 16 KiB."""
    eighth = elements * 4 // executors // 8 // 4
    size = max(4096, min(most // 4, eighth))
    ranges = pairwise(elements * e // executors for e in range(executors + 1))
    return [*(at for a, b in ranges for at in range(a, b, size)), elements]


def encoded(codec: str, elements: int, parameters: int, executors: int, most: int, carried: bool) -> dict[str, Any]:
    """A shard, `numbers(1)`, as a difference from `numbers(2)`; with a rest, `numbers(3)`, added to it if one is carried."""
    values, base, before = (numbers(seed, elements) for seed in (1, 2, 3))
    differences = [single(one - other) for one, other in zip(values, base, strict=True)]
    if carried:
        differences = [single(one + other) for one, other in zip(differences, before, strict=True)]
    sent = differences[:parameters] + values[parameters:]
    edges, data, decoded = cut(elements, executors, most), [], b""
    for a, b in pairwise(edges):
        one = chunk(codec, "", sent[a:b], max(0, min(b, parameters) - a))
        data.append(bytes.fromhex(one["bytes"]))
        decoded += bytes.fromhex(one["decoded"])
    read = list(struct.unpack(f"<{elements}f", decoded))
    rest = [single(one - other) for one, other in zip(sent[:parameters], read, strict=False)] + [0.0] * (elements - parameters)
    result = [single(one + other) for one, other in zip(read[:parameters], base, strict=False)] + read[parameters:]
    return {
        "codec": codec,
        "elements": elements,
        "parameters": parameters,
        "executors": executors,
        "chunk": most,
        "carried": carried,
        "edges": edges,
        "lengths": [len(one) for one in data],
        "crcs": [crc32(one) for one in data],
        "rest": crc32(struct.pack(f"<{elements}f", *rest)),
        "result": crc32(struct.pack(f"<{elements}f", *result)),
    }


def shards() -> list[dict[str, Any]]:
    cases = (
        (12301, 12290, 2, 16 << 10, False),  # odd edges; a few buffers behind the parameters of the last chunk
        (9000, 8001, 1, 16 << 10, True),  # the last chunk has buffers alone
        (5000, 5000, 3, 1 << 20, True),  # fewer than a chunk for each
        (4099, 4097, 1, 1 << 20, False),  # one parameter in the last chunk
    )
    return [encoded(codec, *case) for codec in ("bf16", "int8", "int4") for case in cases]


def write(name: str, content: Any) -> None:
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    (HERE / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    HERE.mkdir(exist_ok=True)
    write("messages.json", MESSAGES)
    write("bad_frames.json", BAD_FRAMES)
    write("slots.json", SLOTS)
    write("orders.json", [packed("empty", EMPTY_ORDER), packed("full", FULL_ORDER), packed("answer", ANSWER)])
    write("events.json", EVENTS)
    write("sums.json", [weighted_sum([1.0], 33), weighted_sum([131 / 251, 120 / 251], 64), weighted_sum([0.1] * 10, 100)])
    write("codecs.json", chunks())
    write("encoded.json", shards())
