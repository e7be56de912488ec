"""alpha.random: Philox against its published vectors, distributions, state, threads."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from alpha import random
from alpha.errors import ArgumentError, DtypeError, ShapeError

# Known-answer vectors of the Random123 distribution: counter, key, result.
VECTORS = [
    ([0, 0, 0, 0], (0, 0), [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([0xFFFFFFFF] * 4, (0xFFFFFFFF, 0xFFFFFFFF), [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        (0xA4093822, 0x299F31D0),
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]

# Drawn once from seed 2026: IEEE arithmetic gives them on every machine.
NORMAL64 = ["-0x1.879ecf118c170p-2", "-0x1.3d5805474de39p+0", "-0x1.22bf0854181e7p-3", "0x1.df47311ac970dp-5"]
NORMAL32 = ["0x1.0560960000000p-1", "-0x1.8420400000000p+0", "0x1.eb09960000000p+0", "0x1.7136180000000p-2"]


def scalar_philox(counter: list[int], key: tuple[int, int]) -> list[int]:
    """The definition with Python's integers."""
    c, k = list(counter), list(key)
    for _ in range(10):
        p0, p1 = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        low = 2**32 - 1
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & low, (p0 >> 32) ^ c[3] ^ k[1], p0 & low]
        k = [(k[0] + 0x9E3779B9) & low, (k[1] + 0xBB67AE85) & low]
    return c


@pytest.mark.parametrize(("counter", "key", "expected"), VECTORS)
def test_philox_gives_the_published_vectors(counter: list[int], key: tuple[int, int], expected: list[int]) -> None:
    assert scalar_philox(counter, key) == expected
    assert random.philox(np.array(counter, np.uint32)[:, None], key)[:, 0].tolist() == expected


@pytest.mark.parametrize("offset", [0, 5, 2**32 - 2, 2**64 - 2])
def test_words_follow_seed_offset_and_element(offset: int) -> None:
    seed = 0x0123456789ABCDEF
    drawn = random.words(seed, offset, 18)
    for i, word in enumerate(drawn.tolist()):
        counter = (offset + i // 4) % 2**64
        expected = scalar_philox([counter % 2**32, counter >> 32, 0, 0], (seed % 2**32, seed >> 32))
        assert word == expected[i % 4]


def test_words_do_not_depend_on_how_many_are_drawn_at_once() -> None:
    whole = random.words(3, 10, 4 * 70000)  # more than one chunk
    assert np.array_equal(whole[4 * 69000 :], random.words(3, 10 + 69000, 4000))
    assert random.words(3, 10, 0).shape == (0,)


def test_uniforms_are_the_top_bits_of_the_words() -> None:
    words = random.words(9, 2, 1000)
    singles = random.uniforms(9, 2, 1000)
    assert singles.dtype == np.float32
    assert np.array_equal(singles.astype(np.float64) * 2**24, words >> 8)
    doubles = random.uniforms(9, 2, 500, np.float64)
    bits = (words[0::2].astype(np.uint64) >> 5) << 26 | words[1::2] >> 6
    assert np.array_equal(doubles * 2.0**53, bits.astype(np.float64))
    assert singles.min() >= 0 and singles.max() < 1 and doubles.min() >= 0 and doubles.max() < 1


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_uniform_is_uniform(dtype: str) -> None:
    random.manual_seed(1)
    draws = random.uniform((200, 500), -2.0, 3.0, dtype)
    assert draws.dtype == dtype and draws.shape == (200, 500)
    assert draws.min() >= -2 and draws.max() < 3
    # Mean and variance within 4 standard errors of 100,000 draws.
    assert abs(draws.mean(dtype=np.float64) - 0.5) < 4 * 5 / np.sqrt(12) / np.sqrt(1e5)
    assert abs(draws.var(dtype=np.float64) - 25 / 12) < 0.03
    counts = np.histogram(draws, 50, (-2, 3))[0]
    assert ((counts - 2000) ** 2 / 2000).sum() < 99  # chi-squared, 49 degrees of freedom, p = 0.00003


def test_uniform_never_returns_its_end() -> None:
    random.manual_seed(0)
    low, high = np.float32(1), np.nextafter(np.float32(1), np.float32(2))
    assert (random.uniform(1000, float(low), float(high)) == low).all()
    assert (random.uniform(3, 2.0, 2.0) == 2).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_normal_is_normal(dtype: str) -> None:
    random.manual_seed(2)
    draws = random.normal(400_001, 1.0, 2.0, dtype)
    assert draws.dtype == dtype and draws.shape == (400_001,)
    z = (draws.astype(np.float64) - 1) / 2
    # 4 standard errors: 1/sqrt(n), sqrt(2/n), sqrt(6/n), sqrt(24/n) for mean, variance, skewness, excess kurtosis.
    n = len(z)
    assert abs(z.mean()) < 4 / np.sqrt(n)
    assert abs(z.var() - 1) < 4 * np.sqrt(2 / n)
    assert abs((z**3).mean()) < 4 * np.sqrt(15 / n)
    assert abs((z**4).mean() - 3) < 4 * np.sqrt(96 / n)
    assert abs(np.corrcoef(z[0:-1:2], z[1::2])[0, 1]) < 4 / np.sqrt(n / 2)
    assert 4 < abs(z).max() < 7


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_normal_draws_each_pair_from_its_own_words(dtype: str) -> None:
    random.manual_seed(5)
    count = 2 * 131072 + 3  # more than one chunk, and odd
    draws = random.normal(count, dtype=dtype)
    first = 2 * 131072  # the last pair but one starts here
    words = random.words(5, 0, 2 * (count + 1)).astype(np.float64)
    if dtype == "float32":
        u1, u2 = (words[first] + 0.5) / 2**32, (words[first + 1] + 0.5) / 2**32
    else:
        u = random.uniforms(5, 0, count + 1, "float64") + 2.0**-54
        u1, u2 = u[first], u[first + 1]
    expected = np.sqrt(-2 * np.log(u1)) * np.array([np.cos(2 * np.pi * u2), np.sin(2 * np.pi * u2)])
    np.testing.assert_allclose(draws[first : first + 2], expected, rtol=1e-6)


@pytest.mark.needs("mpmath")
def test_the_functions_of_normal_keep_their_stated_errors() -> None:
    import mpmath

    exact = mpmath.mp
    u = np.concatenate(
        [random.uniforms(1, 0, 2000, "float64") + 2.0**-54, 2.0 ** -np.arange(55), 1 - 2.0 ** -np.arange(2, 53)]
    )
    with exact.workprec(120):
        logarithms = [exact.log(value) for value in u.tolist()]
        errors = [
            abs(ours - true) / np.spacing(abs(float(true)))
            for ours, true in zip(random._log(u).tolist(), logarithms, strict=True)
            if true
        ]
        assert max(errors) < 3
        radius = [exact.sqrt(-2 * value) for value in logarithms]
        turns = [2 * exact.pi * value for value in u[::-1].tolist()]
        for part, function in zip(random._normal_pairs(u, u[::-1]), (exact.cos, exact.sin), strict=True):
            wanted = [r * function(turn) for r, turn in zip(radius, turns, strict=True)]
            # 4e-16 of the sine or cosine, and two more roundings in the radius and the product.
            assert max(abs(a - b) - 8e-16 * r for a, b, r in zip(part.tolist(), wanted, radius, strict=True)) <= 0


def test_the_definition_of_normal_stays_to_the_bit() -> None:
    random.manual_seed(2026)
    assert [value.hex() for value in random.normal(4, dtype="float64").tolist()] == NORMAL64
    assert [value.hex() for value in random.normal(4, 1.0, 3.0).tolist()] == NORMAL32


def test_permutation_holds_every_number_once_and_every_order_is_as_likely() -> None:
    random.manual_seed(7)
    assert sorted(random.permutation(1000).tolist()) == list(range(1000))
    assert random.permutation(0).tolist() == []
    seen = [tuple(random.permutation(3).tolist()) for _ in range(3000)]
    counts = [seen.count(order) for order in set(seen)]
    assert len(counts) == 6
    assert sum((c - 500) ** 2 / 500 for c in counts) < 26  # chi-squared, 5 degrees of freedom, p = 0.0001


def test_the_same_seed_draws_the_same_and_the_state_goes_back() -> None:
    def draw() -> tuple[bytes, ...]:
        return (
            random.uniform(7).tobytes(),
            random.normal((3, 5), dtype="float64").tobytes(),
            random.permutation(9).tobytes(),
        )

    random.manual_seed(123)
    assert random.seed() == 123
    first = draw()
    state = json.loads(json.dumps(random.get_state()))
    second = draw()
    assert first != second
    random.set_state(state)
    assert draw() == second
    random.manual_seed(123)
    assert draw() == first


def test_draws_do_not_overlap() -> None:
    random.manual_seed(4)
    seed, offset = random.reserve(5)
    assert (seed, offset) == (4, 0)
    assert random.reserve(0) == (4, 2)
    assert random.reserve(8) == (4, 2)
    assert random.reserve(1) == (4, 4)


def test_negative_and_long_seeds_count_their_lowest_64_bits() -> None:
    random.manual_seed(-1)
    assert random.seed() == 2**64 - 1
    random.manual_seed(2**64 + 5)
    assert random.seed() == 5
    random.manual_seed(np.int64(6))  # type: ignore[arg-type]
    assert random.seed() == 6


def test_threads_reserve_different_counters() -> None:
    random.manual_seed(0)
    with ThreadPoolExecutor(8) as pool:
        offsets = [offset for _, offset in pool.map(lambda _: random.reserve(4), range(2000))]
    assert sorted(offsets) == list(range(2000))


def test_numpy_generators_depend_on_seed_and_stream_alone() -> None:
    random.manual_seed(11)
    first = random.numpy_generator(1, 2).random(4).tolist()
    random.uniform(100)
    assert random.numpy_generator(1, 2).random(4).tolist() == first
    others = [random.numpy_generator(*stream).random(4).tolist() for stream in [(1, 3), (2, 1), (1,), ()]]
    random.manual_seed(12)
    others.append(random.numpy_generator(1, 2).random(4).tolist())
    assert all(other != first for other in others)


def test_a_new_process_starts_anywhere_and_can_be_repeated() -> None:
    program = "from alpha import random; print(random.seed(), random.uniform(1)[0])"
    runs = {subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout for _ in range(2)}
    assert len(runs) == 2
    seed, value = runs.pop().split()
    random.manual_seed(int(seed))
    assert random.uniform(1)[0] == np.float32(value.decode())


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: random.manual_seed("x"), ArgumentError, r"^\[manual_seed\] expected an integer seed, got 'x'"),
        (lambda: random.uniform(3, 2, 1), ArgumentError, r"^\[uniform\] expected finite low <= high, got 2 and 1"),
        (lambda: random.uniform(3, 0, float("inf")), ArgumentError, r"^\[uniform\] .*inf"),
        (lambda: random.uniform(-3), ShapeError, r"^\[uniform\] expected a shape"),
        (lambda: random.uniform(3, dtype="int32"), DtypeError, r"^\[uniform\] expected float32 or float64, got int32"),
        (lambda: random.normal(3, 0, -1), ArgumentError, r"^\[normal\] .*std >= 0"),
        (lambda: random.normal((2, 1.5)), ArgumentError, r"^\[normal\] expected a shape of integers"),
        (lambda: random.permutation(-1), ArgumentError, r"^\[permutation\] expected a count >= 0, got -1"),
        (lambda: random.numpy_generator(-1), ArgumentError, r"^\[numpy_generator\] expected integers >= 0"),
        (lambda: random.set_state({"seed": 1}), ArgumentError, r"^\[set_state\] expected a state"),
        (lambda: random.set_state({"seed": -1, "offset": 0}), ArgumentError, r"^\[set_state\] expected a state"),
        (lambda: random.set_state(None), ArgumentError, r"^\[set_state\] expected a state"),
    ],
)
def test_wrong_arguments_say_so_and_change_nothing(call, error, message) -> None:  # type: ignore[no-untyped-def]
    random.manual_seed(1)
    before = random.get_state()
    with pytest.raises(error, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
    assert random.get_state() == before
