from math import inf, isnan

import pytest


@pytest.mark.parametrize("delimiter", [",", "\t", ";"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("rows", [3, 500])
def test_tables_of_every_delimiter(reading, delimiter, newline, rows):
    # More rows than are sampled: the first by their text, the rest by the fast path.
    table = [f"{i}{delimiter}{i / 7!r}{delimiter}{i}e-3" for i in range(rows)]
    got = reading(newline.join([delimiter.join(("step", "train/loss", "a b")), *table, ""]))
    assert got.container == "csv"
    assert got.records == [{"step": i, "train/loss": i / 7, "a b": float(f"{i}e-3")} for i in range(rows)]
    assert got.lines == list(range(2, rows + 2))
    assert got.notes == []


def pattern(i):
    cells = [str(i), "" if i % 2 else f"{i}.5", "nan" if i % 3 else "-inf", "" if i % 5 else "7"]
    return ",".join(cells)


def test_blank_cells_are_absent_and_nan_is_a_value(reading):
    got = reading("a,b,c,d\n" + "".join(pattern(i) + "\n" for i in range(400)))
    for i, record in enumerate(got.records):
        assert record["a"] == i
        assert record.get("b") == (None if i % 2 else i + 0.5)
        assert isnan(record["c"]) if i % 3 else record["c"] == -inf
        assert record.get("d") == (None if i % 5 else 7)
    assert len(got.records) == 400


def test_a_header_that_repeats_or_changes(reading):
    body = "".join(f"{i},0.5\n" for i in range(200))
    got = reading("a,b\n" + body + "a,b\n" + body + "a,b,c\n1,2,3\n")
    assert len(got.records) == 401
    assert got.records[-1] == {"a": 1, "b": 2, "c": 3}
    assert got.says("header is repeated")
    assert got.says("header changes")
    assert got.skipped == 0


def test_rows_of_a_wrong_width_are_skipped_with_their_lines(reading):
    body = "".join(f"{i},0.5,1\n" for i in range(100))
    got = reading("a,b,c\n1,2\n1,2,3,\n1,2,3,4\n" + body + "5,6\n7,8,9,10\n\n1,1,1,\n")
    assert got.skipped == 4
    assert len(got.records) == 102
    assert [note.source.line for note in got.notes] == [2, 4, 105, 106]


def test_text_cells_and_quotes(reading):
    got = reading('a,b,env\n1,0.5,"x, ""y""\nz"\n2,0.5,plain\n' + "3,0.5,w\n" * 100)
    assert got.texts["env"][:2] == [(0, 'x, "y"\nz'), (1, "plain")]
    assert [record["a"] for record in got.records[:3]] == [1, 2, 3]
    assert got.lines[:3] == [2, 4, 5]


def test_a_quote_that_is_never_closed_costs_one_row(reading):
    got = reading('a,b\n1,2\n"3,4\n' + "5,6\n" * 200)
    assert len(got.records) == 201
    assert got.skipped == 1


def test_the_monitor_of_sb3_and_baselines(reading):
    for mark in ("#", "# "):
        got = reading(mark + '{"t_start": 1.5, "env_id": "CartPole-v1"}\nr,l,t\n20.0,20,4.2\n')
        assert got.configs[0].values == {"t_start": 1.5, "env_id": "CartPole-v1"}
        assert got.records == [{"r": 20, "l": 20, "t": 4.2}]


def test_no_header_gives_numbered_columns(reading):
    got = reading("100,,,0.0\n200,,1,0.5\n")
    assert got.records == [{"column_1": 100, "column_4": 0}, {"column_1": 200, "column_3": 1, "column_4": 0.5}]
    assert got.says("no header")


def test_odd_numbers(reading):
    rows = "1" + "0" * 400 + ",+.5,1.,12.5%\n"
    got = reading("a,b,c,d\n" + rows + "1,1,1,1\n" * 100 + rows)
    for record in (got.records[0], got.records[-1]):
        assert record == {"a": inf, "b": 0.5, "c": 1, "d": 0.125}
    assert got.says("too large")


def test_a_decimal_comma_needs_a_semicolon(reading):
    assert reading("a;b\n" + "0,5;1\n" * 3).records == [{"a": 0.5, "b": 1}] * 3


def test_cells_cannot_break_out_of_the_json_made_of_them(reading):
    body = "1,2\n" * 100
    got = reading("a,b\n" + body + "1],[2,3\n" + body + "true,false\n" + body + "[1],2\n" + '1,"2"\n')
    assert [len(record) for record in got.records].count(2) == 302
    assert got.records[-1] == {"a": 1, "b": 2}
    assert got.skipped == 1


def test_words_that_hold_nan_stay_words(reading):
    body = "1,nan\n" * 100
    got = reading("a,b\n" + body + "2,banana\n2,nan1\n2,inf2\n" + body)
    assert [text for _, text in got.texts["b"]] == ["banana", "nan1", "inf2"]
    assert sum(isnan(record["b"]) for record in got.records if "b" in record) == 200


def test_decimals_are_told_for_fixed_formats_only(reading):
    rows = "".join(f"{i},{i / 8:.3f},{i / 8!r},0.0,1e-0{i % 9},{i % 4}.{i % 10},{i / 3:.15f}\n" for i in range(300))
    got = reading("step,fixed,full,zero,exp,tenths,many\n" + rows)
    assert got.decimals == {"fixed": 3, "tenths": 1}


def test_a_constant_zero_printed_with_three_decimals(reading):
    assert reading("a,b\n" + "1,0.000\n" * 3).decimals == {"b": 3}


def test_a_late_value_with_more_decimals_takes_the_claim_back(reading):
    got = reading("a,b\n" + "1,0.100\n" * 200 + "1,0.123456\n")
    assert got.decimals == {}


def test_two_columns_of_one_name(reading):
    got = reading("a,b,a\n" + "1,2,3\n" * 100)
    assert got.records == [{"a": 3, "b": 2}] * 100
    assert got.says("two columns are named a")


def test_every_table_of_a_long_file_tells_its_decimals(reading):
    got = reading("a,b\n" + "1,0.100\n" * 100_000)
    assert [table.decimals for table in got.tables] == [{"b": 3}] * 2
    assert sum(len(table.records) for table in got.tables) == 100_000


def test_a_header_before_each_row(reading):
    got = reading("".join(f"a,b\n{i},0.5\n" for i in range(1, 9)))
    assert [record["a"] for record in got.records] == list(range(1, 9))


def test_settings_in_further_columns_of_the_first_row(reading):
    got = reading("episode,reward,K_epochs,eps_clip,\n10,1.5,80,0.2,\n20,2.5\n30,3.5\n40,4.5\n")
    assert got.container == "csv"
    assert [record["reward"] for record in got.records] == [1.5, 2.5, 3.5, 4.5]
    assert all(record.keys() == {"episode", "reward"} for record in got.records)
    assert got.configs[0].values == {"K_epochs": 80, "eps_clip": 0.2}
    assert got.skipped == 0


def test_a_row_that_is_cut_off_among_whole_ones_is_still_no_row(reading):
    got = reading("step,reward,kl\n1,1.5,0.1\n2,2.5,0.1\n3,3.5\n4,4.5,0.1\n")
    assert [record["step"] for record in got.records] == [1, 2, 4]
    assert got.skipped == 1


def test_a_carriage_return_alone_ends_a_line(reading):
    got = reading("r,l,t\r10.5,83,6.25\n0.25,400,6.5\n0.5,400,6.75\n")
    assert got.container == "csv"
    assert [record["l"] for record in got.records] == [83, 400, 400]
    assert got.lines == [1, 2, 3]
