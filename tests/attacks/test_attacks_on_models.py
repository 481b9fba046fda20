"""Attacks by a model file's header: it is read by the aggregation server before anybody is paid or trusted."""

import json
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import SafetensorError
from safetensors.numpy import save

from coterie.errors import WrongModel
from coterie.learning import tensor_files
from coterie.learning.models import load_model
from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from services.aggregation.domain.layout import (
    MAX_DIMENSIONS,
    MAX_HEADER_BYTES,
    MAX_TENSORS,
    PREFIX_BYTES,
    header_length,
    parse,
)
from services.aggregation.errors import BadModel
from services.kit.errors import InvalidInput
from services.kit.rpc.principal import Principal, set_principal
from tests.contract.aggregation.conftest import Client, ServiceFixture, service

__all__ = ["service"]

TWICE = {
    "the very same entry": '"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},',
    "another place": '"w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]},',
    "the name spelt otherwise": r'"\u0077":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},',
    "notes": '"__metadata__":{},"__metadata__":{},',
    "a deep first entry": '"w":' + "[" * 900 + "]" * 900 + ",",
}


@pytest.mark.parametrize("first", TWICE.values(), ids=TWICE.keys())
def test_header_that_names_something_twice_is_refused_by_server_and_device(first: str, tmp_path: Path) -> None:
    """One reader keeps the first and another the last: they would see different models in one file."""
    data = file_of("{" + first + described()[1:])
    length = header_length(data[:PREFIX_BYTES], len(data))
    with pytest.raises(BadModel, match=r"twice|not JSON|deeply"):
        parse(data[PREFIX_BYTES : PREFIX_BYTES + length], len(data))
    (tmp_path / "model").write_bytes(data)
    with pytest.raises(WrongModel):
        load_model(tmp_path / "model")
    with pytest.raises((ValueError, SafetensorError)):
        tensor_files.load(data)


def test_a_duplicate_key_is_refused_and_an_honest_header_is_not(tmp_path: Path) -> None:
    with pytest.raises(BadModel, match="'shape' twice"):
        parse(described(more=',"shape":[1]').encode(), 1000)
    (tmp_path / "model").write_bytes(save({"w": np.ones(3, np.float32), "v": np.ones((2, 2))}))
    assert set(load_model(tmp_path / "model")) == {"w", "v"}


LONGEST_REFUSAL = 700
"""Characters; a refusal travels in a header of gRPC, which has room for few thousand bytes."""
DEEP = 100_000


def described(shape: str = "[1]", dtype: str = '"F32"', more: str = "") -> str:
    return f'{{"w":{{"dtype":{dtype},"shape":{shape},"data_offsets":[0,4]{more}}}}}'


def numbers(count: int, value: int) -> str:
    return json.dumps([value] * count)


LIES = {
    "sixty thousand dimensions": described(numbers(60_000, (1 << 48) - 1)),
    "nine dimensions": described(numbers(MAX_DIMENSIONS + 1, 1)),
    "a deep shape": described("[" * DEEP + "]" * DEEP),
    "a deep dtype": described(dtype="[" * 1000 + "]" * 1000),
    "a deep fact more": described(more=',"x":' + "[" * 1000 + "]" * 1000),
    "deep notes": '{"__metadata__":{"a":' + "[" * 1000 + "]" * 1000 + "}}",
    "a number of many digits": described("[" + "9" * 4000 + "]"),
    "a name of a million characters": '{"' + "w" * 1_000_000 + '":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}',
    "a dtype of a million characters": described(dtype='"' + "F" * 1_000_000 + '"'),
    "a tensor too many": json.dumps(
        {f"t{i}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(MAX_TENSORS + 1)}
    ),
}


def file_of(header: str) -> bytes:
    return len(header).to_bytes(PREFIX_BYTES, "little") + header.encode() + bytes(4)


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
def test_a_header_that_is_too_much_is_refused_at_once_and_in_few_words(lie: str) -> None:
    data = file_of(lie)
    started = time.process_time()
    with pytest.raises(BadModel) as refused:
        length = header_length(data[:PREFIX_BYTES], len(data))
        parse(data[PREFIX_BYTES : PREFIX_BYTES + length], len(data))
    assert time.process_time() - started < 1.0
    assert len(refused.value.message) < LONGEST_REFUSAL


def test_a_header_above_the_limit_is_not_even_read() -> None:
    prefix = (MAX_HEADER_BYTES + 1).to_bytes(PREFIX_BYTES, "little")
    with pytest.raises(BadModel, match=f"at most {MAX_HEADER_BYTES}"):
        header_length(prefix, 1 << 40)


async def put(client: Client, data: bytes) -> str:
    set_principal(Principal("publisher", "pub_1"))
    return await client.service.blobs.put_bytes(data)


@pytest.mark.parametrize("settings", ["sqlite"], indirect=True)
async def test_deep_or_many_dimensional_model_header_is_the_publishers_error(
    service: ServiceFixture,
) -> None:
    client = await service.start()
    for lie in ("sixty thousand dimensions", "a deep shape", "deep notes"):
        digest = await put(client, file_of(LIES[lie]))
        with pytest.raises(InvalidInput):
            await client.tasks.RegisterModel(pb.RegisterModelRequest(digest=digest))
    assert await client.upload_model(np.zeros(3, np.float32))


@pytest.mark.parametrize("settings", ["sqlite"], indirect=True)
async def test_deep_or_many_dimensional_update_is_refused_and_round_continues(
    service: ServiceFixture,
) -> None:
    client = await service.start()
    task = await client.create(["dev_liar", "dev_honest"], rounds=1)
    await client.start_task(task.id)
    lying, honest = [await client.get_work(device) for device in ("dev_liar", "dev_honest")]
    for shape in ("[" * 20_000 + "]" * 20_000, numbers(3000, (1 << 48) - 1)):  # as long as an update may be here
        data = file_of(described(shape))
        digest = await put(client, data)
        with pytest.raises(InvalidInput, match="not a sound safetensors file"):
            await client.deliver(lying, "dev_liar", [0, 0, 0], digest=digest, size_bytes=len(data))
    await client.deliver(honest, "dev_honest", [1, 2, 3])
    await client.deliver(lying, "dev_liar", [1, 2, 3])
    ended = await client.finished(task.id)
    np.testing.assert_allclose(await client.model(ended.model_digests[0]), [1, 2, 3])


@given(st.lists(st.lists(st.integers(0, 3), max_size=MAX_DIMENSIONS), min_size=1, max_size=5))
def test_an_honest_model_of_any_shape_is_read(shapes: list[list[int]]) -> None:
    data = save({f"t{i}": np.ones(shape, np.float32) for i, shape in enumerate(shapes)}, {"made by": "an honest owner"})
    length = header_length(data[:PREFIX_BYTES], len(data))
    layout = parse(data[PREFIX_BYTES : PREFIX_BYTES + length], len(data))
    assert {tensor.name: list(tensor.shape) for tensor in layout.tensors} == {
        f"t{i}": shape for i, shape in enumerate(shapes)
    }


def test_an_honest_model_of_twenty_thousand_tensors_is_read() -> None:
    data = save({f"blocks.{i}.attention.query.weight": np.ones(1, np.float32) for i in range(MAX_TENSORS)})
    length = header_length(data[:PREFIX_BYTES], len(data))
    assert len(parse(data[PREFIX_BYTES : PREFIX_BYTES + length], len(data)).tensors) == MAX_TENSORS
