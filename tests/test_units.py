"""Quantities with units: GB against GiB, bits against bytes, exact picoseconds."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nestopt.core.errors import InputError
from nestopt.core.units import (
    format_bytes,
    format_rate,
    format_seconds,
    parse_bandwidth,
    parse_bytes,
    parse_flops,
    parse_time,
    parse_time_ps,
)

PARSERS = (parse_bytes, parse_bandwidth, parse_flops, parse_time, parse_time_ps)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("80 GB", 80e9),
        ("80 GiB", 80 * 2**30),
        ("80GiB", 80 * 2**30),
        ("  1.5 MB ", 1.5e6),
        ("25 KB", 25e3),
        ("25 kB", 25e3),
        ("1e3 B", 1000),
        (".5 KiB", 512),
        ("16 Mbit", 2e6),
        ("0 B", 0),
    ],
)
def test_bytes(text: str, count: float) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("450 GB/s", 450e9),
        ("50 GiB/s", 50 * 2**30),
        ("400 Gb/s", 50e9),
        ("400 Gbps", 50e9),
        ("400 Gbit/s", 50e9),
        ("1 TB/s", 1e12),
        ("12.5 GB / s", 12.5e9),
    ],
)
def test_bandwidth_tells_bits_from_bytes(text: str, rate: float) -> None:
    assert parse_bandwidth(text) == rate


@pytest.mark.parametrize("text", ["312 TFLOP/s", "312 TFLOPS", "312TFLOPs/s", "0.312 PFLOP/s"])
def test_flops(text: str) -> None:
    assert parse_flops(text) == 312e12


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0.7 us", 7e-7), ("0.7 µs", 7e-7), ("5 min", 300), ("54 d", 54 * 86400), ("3 ps", 3e-12)],
)
def test_time(text: str, seconds: float) -> None:
    assert parse_time(text) == seconds


@pytest.mark.parametrize("parser", PARSERS)
@pytest.mark.parametrize("text", ["80", "0", "", "   ", "GB", "80 80 GB", "nan s", "1e999 s"])
def test_text_without_a_unit_or_a_number_is_refused(parser: object, text: str) -> None:
    with pytest.raises(InputError, match="expected"):
        parser(text)  # type: ignore[operator]


@pytest.mark.parametrize("parser", PARSERS)
@pytest.mark.parametrize("text", ["7 parsec", "7 GB/h", "7 gb", f"{'9' * 400} s", "1e99999999 B"])
def test_unknown_units_and_endless_numbers_are_refused(parser: object, text: str) -> None:
    with pytest.raises(InputError):
        parser(text)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("parser", "text"),
    [
        (parse_bytes, "400 GB/s"),
        (parse_bandwidth, "400 GB"),
        (parse_time, "400 GB"),
        (parse_flops, "3 s"),
    ],
)
def test_a_unit_of_another_dimension_is_refused(parser: object, text: str) -> None:
    with pytest.raises(InputError, match="unknown unit"):
        parser(text)  # type: ignore[operator]


@pytest.mark.parametrize("parser", PARSERS)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, True])
def test_a_number_must_be_finite(parser: object, value: float) -> None:
    with pytest.raises(InputError):
        parser(value)  # type: ignore[operator]


@pytest.mark.parametrize("parser", PARSERS)
def test_numbers_are_in_si_already(parser: object) -> None:
    assert parser(17) == 17  # type: ignore[operator]


def test_the_error_names_the_field() -> None:
    with pytest.raises(InputError, match=r"^levels\[1\]\.port: '80' has no unit"):
        parse_bandwidth("80", "levels[1].port")


def test_picoseconds_are_never_rounded() -> None:
    assert parse_time_ps("0.7 us") == 700_000
    assert parse_time_ps("0.000001 us") == 1
    assert parse_time_ps("0.1 s") == 10**11
    for text in ("0.0000001 us", "0.5 ps"):
        with pytest.raises(InputError, match="not a whole number of picoseconds"):
            parse_time_ps(text)
    with pytest.raises(InputError, match="not a whole number of picoseconds"):
        parse_time_ps(1.5)  # type: ignore[arg-type]


@given(
    st.decimals(min_value=0, max_value=10**6, allow_nan=False, places=6),
    st.sampled_from(["ns", "us", "ms", "s", "min", "h", "d"]),
)
def test_both_time_parsers_agree_exactly(number: object, unit: str) -> None:
    text = f"{number} {unit}"
    scale = {"ns": 1000, "us": 10**6, "ms": 10**9, "s": 10**12}.get(unit)
    scale = scale or {"min": 60, "h": 3600, "d": 86400}[unit] * 10**12
    exact = Fraction(str(number)) * scale
    assert parse_time(text) == float(exact / 10**12)
    if exact.denominator == 1:
        assert parse_time_ps(text) == exact


@given(st.integers(min_value=1, max_value=10**15), st.sampled_from(["", "k", "M", "G", "T", "P"]))
def test_a_bit_is_an_eighth_of_a_byte(number: int, prefix: str) -> None:
    assert parse_bandwidth(f"{number} {prefix}b/s") * 8 == pytest.approx(
        parse_bandwidth(f"{number} {prefix}B/s"), rel=1e-15
    )


@given(st.integers(min_value=1, max_value=2**40), st.sampled_from("KMGTP"))
def test_binary_and_decimal_prefixes_differ_by_their_ratio(number: int, prefix: str) -> None:
    power = "KMGTP".index(prefix) + 1
    decimal = "k" if prefix == "K" else prefix
    assert parse_bytes(f"{number} {prefix}iB") == float(number * 1024**power)
    assert parse_bytes(f"{number} {decimal}B") == float(number * 1000**power)


@given(st.floats(min_value=1e-11, max_value=1e7))
def test_a_printed_time_reads_back_to_four_digits(seconds: float) -> None:
    text = format_seconds(seconds)
    assert "e" not in text
    assert parse_time(text) == pytest.approx(seconds, rel=5.1e-4)


@given(st.floats(min_value=1, max_value=1e18))
def test_printed_bytes_and_rates_read_back_to_four_digits(value: float) -> None:
    assert parse_bytes(format_bytes(value)) == pytest.approx(value, rel=5.1e-4)
    assert parse_bandwidth(format_rate(value)) == pytest.approx(value, rel=5.1e-4)


def test_special_times_are_printed_too() -> None:
    assert format_seconds(0) == "0 s"
    assert format_seconds(math.inf) == "inf"
    assert format_seconds(-0.0025) == "-2.5 ms"
    assert format_seconds(123456.7) == "123457 s"
