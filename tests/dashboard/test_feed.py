"""Following a journal: every row comes once, whatever is sealed, restarted, torn or missed in between."""

from __future__ import annotations

import numpy as np
import pytest

from forerun.dashboard.feed import KEPT_BATCHES, Feed, format_place, parse_place, rows_between
from forerun.record.journal import Journal
from forerun.record.run import start_run


@pytest.fixture
def run_dir(tmp_path):
    start_run(tmp_path / "run", num_steps=100, unregistered=True)
    return tmp_path / "run"


def write(run_dir, steps, writer=0) -> None:
    with Journal(run_dir, writer) as journal:  # closing seals
        for step in steps:
            journal.log(step, {"loss_nats": float(step)})


def steps_of(batches) -> list[int]:
    return [row["step"] for batch in batches for row in batch.rows]


def test_new_rows_come_once_and_old_ones_not_at_all(run_dir):
    write(run_dir, range(5))
    feed = Feed(run_dir)
    assert feed.poll() == []
    with Journal(run_dir) as journal:
        journal.log(5, {"loss_nats": 1.0})
        assert steps_of(feed.poll()) == [5]
        assert feed.poll() == []
        journal.log(6, {"loss_nats": float("nan")})
        assert [row["loss_nats"] for batch in feed.poll() for row in batch.rows] == ["NaN"]


def test_rows_written_and_sealed_between_two_looks_are_read_from_the_segment(run_dir):
    feed = Feed(run_dir)
    feed.poll()
    write(run_dir, range(3))
    write(run_dir, range(3, 8))
    assert steps_of(feed.poll()) == list(range(8))
    assert feed.place == {0: 8}


def test_a_line_that_is_still_being_written_waits_until_it_is_whole(run_dir):
    with Journal(run_dir) as journal:
        journal.log(1, {"loss_nats": 1.0})
        feed = Feed(run_dir)
        feed.poll()
        with journal.path.open("ab") as file:
            file.write(b'{"step": 2, "time": 1.0, "loss')
            file.flush()
            assert feed.poll() == []
            file.write(b'_nats": 2.0}\n')
            file.flush()
        assert steps_of(feed.poll()) == [2]


def test_a_reader_gets_exactly_what_it_lacks_from_memory_or_files(run_dir):
    write(run_dir, range(10))
    feed = Feed(run_dir)
    feed.poll()
    write(run_dir, range(10, 20))
    feed.poll()
    for have in (0, 4, 10, 15, 19):
        assert steps_of(feed.missing({0: have})) == list(range(have, 20))
    assert steps_of(feed.missing({0: 20})) == []


def test_a_reader_further_behind_than_memory_reaches_reads_the_files(run_dir):
    feed = Feed(run_dir)
    feed.poll()
    with Journal(run_dir) as journal:
        for step in range(KEPT_BATCHES + 50):
            journal.log(step, {"loss_nats": 0.0})
            if step % 2 == 0:
                feed.poll()
        feed.poll()
    for _ in range(3):
        feed.poll()
    assert steps_of(feed.missing({})) == list(range(KEPT_BATCHES + 50))


def test_writers_are_told_apart_and_one_that_starts_late_is_read_from_its_first_row(run_dir):
    write(run_dir, range(3))
    feed = Feed(run_dir)
    feed.poll()
    write(run_dir, range(100, 102), writer=1)
    batches = feed.poll()
    assert [(batch.writer, batch.first_row) for batch in batches] == [(1, 0)] and steps_of(batches) == [100, 101]
    assert format_place(feed.place) == "0=3,1=2" and parse_place("0=3,1=2") == feed.place


def test_whatever_is_sealed_when_every_split_of_reads_gives_the_same_rows(run_dir):
    rng, feed, seen = np.random.default_rng(3), Feed(run_dir), []
    feed.poll()
    step = 0
    for _ in range(40):
        with Journal(run_dir) as journal:
            for _ in range(int(rng.integers(0, 5))):
                journal.log(step, {"loss_nats": 0.0})
                step += 1
                if rng.random() < 0.3:
                    seen += steps_of(feed.poll())
        if rng.random() < 0.5:
            seen += steps_of(feed.poll())
    assert seen + steps_of(feed.poll()) == list(range(step))
    assert [row["step"] for row in rows_between(run_dir / "w0", 7, step - 3)] == list(range(7, step - 3))


@pytest.mark.parametrize("text", ["", "x", "0=", "=3", "0=1;1=2", "0=-1", "999999999999=1", "0=1\r\nid: 5"])
def test_a_place_that_is_none_is_the_beginning(text):
    assert parse_place(text) == {}
