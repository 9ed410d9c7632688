#!/usr/bin/env python3
"""The checks find what is planted in histories, and nothing in right ones."""

import unittest

from checks import check
from history import History, Look, Publish, Read, Write, content_of


class Checks(unittest.TestCase):
    def setUp(self):
        self.history = History()
        # Three publishes, one after another; the fate of the last one is unknown.
        self.history.publishes = [Publish("a", 1, 2, 1), Publish("b", 3, 4, 2), Publish("c", 5)]
        self.stream = [(1, "a", content_of("a")), (2, "b", content_of("b")), (3, "c", content_of("c"))]
        # A put, a compare-and-set of it, one that was refused, one whose fate is unknown.
        self.history.writes = [
            Write("k", "v1", 1, None, 2, 1), Write("k", "v2", 3, 1, 4, 2), Write("k", "v3", 5, 1, 6, refused=True),
            Write("k", "v4", 7, 2)]
        self.history.reads = [Read("k", 0, 0.5, 0, None), Read("k", 2.1, 2.9, 1, "v1"), Read("k", 4.5, 4.9, 2, "v2")]
        self.keys = [(1, "k", "v1"), (2, "k", "v2"), (3, "k", "v4")]

    def found(self, what):
        findings = check(self.history, self.stream, self.keys)
        self.assertTrue(any(what in finding for finding in findings), f"{what!r} is not among {findings}")

    def test_a_right_history(self):
        self.history.see(1, content_of("a"), "a get")
        self.history.looks = [Look(4.5, 4.6, 2), Look(1.5, 2.5, 0)]
        self.assertEqual(check(self.history, self.stream, self.keys), [])

    def test_unknown_operations_that_are_not_there(self):
        del self.stream[2], self.keys[2]
        self.assertEqual(check(self.history, self.stream, self.keys), [])

    def test_an_acknowledged_message_is_lost(self):
        del self.stream[1:]
        self.found("b was acknowledged at 2 and is not there")

    def test_an_acknowledged_message_is_elsewhere(self):
        self.stream[1:] = [(2, "c", content_of("c")), (3, "b", content_of("b"))]
        self.found("b was acknowledged at 2 and is at 3")

    def test_a_gap(self):
        self.stream[1] = (3, "b", content_of("b"))
        self.found("after sequence 1 comes 3")

    def test_an_unknown_message_is_there_twice(self):
        self.stream.append((4, "c", content_of("c")))
        self.found("c is there twice")

    def test_another_content(self):
        self.stream[0] = (1, "a", content_of("b"))
        self.found("sequence 1 has the id a and the content")

    def test_two_contents_of_a_sequence(self):
        self.history.see(3, content_of("x"), "a get")
        self.found("sequence 3 is")

    def test_a_sequence_that_was_seen_is_gone(self):
        self.history.see(4, content_of("x"), "a consumer")
        self.found("sequences 4 to 4 were seen")

    def test_a_message_that_nobody_published(self):
        self.stream.append((4, "x", content_of("x")))
        self.found("x at 4 was never published")

    def test_the_order_of_acknowledgements(self):
        self.history.publishes[:2] = [Publish("a", 3, 4, 1), Publish("b", 1, 2, 2)]
        self.found("a at 1 was begun after b was acknowledged at 2")

    def test_a_stale_end(self):
        self.history.looks = [Look(4.5, 4.6, 1)]
        self.found("the log's end was told as 1 after b")

    def test_a_write_is_lost(self):
        del self.keys[1]
        self.found("v2 was acknowledged as 2 and is not there")

    def test_a_refused_write_is_there(self):
        self.keys.append((4, "k", "v3"))
        self.found("v3 was refused and is there")

    def test_a_refusal_without_a_reason(self):
        self.history.writes[2] = Write("k", "v3", 5, 2, 6, refused=True)
        self.found("v3 asked for 2, which the key had")

    def test_a_compare_and_set_of_what_is_not_current(self):
        self.history.writes[1].expected = 0
        self.found("v2 asked for 0 and was set as 2, behind 1")

    def test_a_stale_read(self):
        self.history.reads.append(Read("k", 4.5, 4.9, 1, "v1"))
        self.found("a read of 1 (revision 1) began after v2")

    def test_a_read_before_its_write(self):
        self.history.reads.append(Read("k", 0.1, 0.2, 1, "v1"))
        self.found("v1 (revision 1) began after a read of 1 (revision 1) had ended")

    def test_reads_that_go_back(self):
        self.history.reads += [Read("k", 8, 8.1, 3, "v4"), Read("k", 8.2, 8.3, 2, "v2")]
        self.found("a read of 2 (revision 2) began after a read of 3")

    def test_a_read_of_what_is_not_there(self):
        self.history.reads.append(Read("k", 8, 9, 7, "v9"))
        self.found("v9 was read as 7")

    def test_writes_in_another_order_than_time(self):
        self.history.writes[0] = Write("k", "v1", 6, None, 7, 1)
        self.found("v1 (revision 1) began after v2")

    def test_a_write_is_there_twice(self):
        self.keys.append((4, "k", "v4"))
        self.found("v4 is there twice")


if __name__ == "__main__":
    unittest.main()
