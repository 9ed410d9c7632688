#!/usr/bin/env python3
"""The checks find what is planted in histories, and nothing in right ones; each kind of fault is there, or it is told why not."""

import types
import unittest

import nemesis
from checks import check
from history import Delivery, Floor, History, Look, Publish, Read, Settled, Write, content_of


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
        self.found("sequence 3 of RING is")

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

    def work(self):
        """Three jobs, one whose fate is unknown; the first one is acknowledged, the second one at its second attempt."""
        self.history.jobs = [Publish("j1", 1, 2, 1), Publish("j2", 1, 2, 2), Publish("j3", 1)]
        for seq, key in enumerate(("j1", "j2"), 1):
            self.history.see(seq, content_of(key), "a worker", "JOBS")
        self.history.deliveries = [
            Delivery("workers", 1, 1, 3, 3.1), Delivery("workers", 2, 1, 3, 3.1), Delivery("workers", 2, 2, 6, 6.1)]
        self.history.deliveries += [Delivery("audit", seq, 1, 5.5, 5.6) for seq in (1, 2, 3)]
        self.history.settled = [Settled("workers", 1, 3.2, 3.3), Settled("workers", 2, 3.2), Settled("workers", 2, 6.2, 6.3)]
        self.history.floors = [Floor("workers", 3.4, 3.5, 1), Floor("workers", 6.4, 6.5, 2)]
        self.history.drained, self.history.left = {"workers", "audit"}, {"messages of the work queue": 0}
        self.history.stamps = [1.0, 1.0, 2.0]

    def test_right_work(self):
        self.work()
        # A fetch that was waiting when the acknowledgement was confirmed, and one whose confirmation was lost.
        self.history.deliveries += [Delivery("workers", 1, 2, 3.25, 3.4), Delivery("workers", 3, 1, 3.25, 3.4)]
        self.history.see(3, content_of("j3"), "a worker", "JOBS")
        self.assertEqual(check(self.history, self.stream, self.keys), [])

    def test_a_message_comes_again_after_its_double_ack(self):
        self.work()
        self.history.deliveries.append(Delivery("workers", 1, 2, 3.35, 3.4))
        self.found("workers: 1 was brought, attempt 2, to a fetch that was begun 0.05 s after")

    def test_a_floor_that_falls(self):
        self.work()
        self.history.floors.append(Floor("workers", 6.6, 6.7, 1))
        self.found("workers: all was acknowledged up to 2, and later up to 1")

    def test_a_job_that_nobody_was_brought(self):
        self.work()
        self.history.deliveries = [one for one in self.history.deliveries if one.seq != 2]
        self.found("workers: j2 was acknowledged at 2 and never brought")

    def test_a_message_that_a_consumer_of_the_stream_skips(self):
        self.work()
        self.history.deliveries = [one for one in self.history.deliveries if one.consumer != "audit" or one.seq != 1]
        self.found("audit: a was acknowledged at 1 and never brought")

    def test_a_job_that_goes_unacknowledged(self):
        self.work()
        self.history.settled = self.history.settled[:1]
        self.found("the job j2 is gone, and nobody has acknowledged it")

    def test_a_job_that_is_left(self):
        self.work()
        self.history.left["messages of the work queue"] = 1
        self.found("messages of the work queue in the end: 1")

    def test_a_job_that_is_there_twice(self):
        self.work()
        self.history.see(3, content_of("j1"), "a worker", "JOBS")
        self.found("the job j1 is there twice, at 1 and 3")

    def test_a_job_that_is_another_one(self):
        self.work()
        self.history.jobs[0].seq = 2
        self.found("the job j1 was acknowledged at 2, where")

    def test_times_that_go_back(self):
        self.history.stamps = [1.0, 0.9, 2.0]
        self.found("the time of sequence 2 is before that of 1")


class Kinds(unittest.TestCase):
    def cluster(self, nodes=3, spares=0, zones="abc", **others):
        zone = lambda at: zones[at % len(zones)]
        members = [types.SimpleNamespace(zone=lambda at=at: zone(at)) for at in range(nodes)]
        net = types.SimpleNamespace(has_links=True, has_loss=True, has_proxy=True)
        found = {"etcd": None, "store": None, "has_forgetful_disks": True, "is_nats": False, **others}
        return types.SimpleNamespace(
            net=net, nodes=members, spares=[None] * spares, clocks=types.SimpleNamespace(has_clocks=True),
            nodes_of=lambda wanted: [one for one in members if one.zone() == wanted], **found)

    def test_each_kind_can_be_played_and_each_lack_is_told(self):
        for kind in nemesis.WEIGHTS:
            self.assertTrue(hasattr(nemesis.Nemesis, kind.replace("-", "_")), kind)
        self.assertEqual(set(nemesis.NEEDS.values()) | {"disks"}, set(nemesis.LACKS))
        self.assertLessEqual(nemesis.NAMED_ONLY | nemesis.ON_DISKS | set(nemesis.NEEDS), set(nemesis.WEIGHTS))

    def test_what_is_not_there_is_left_out_and_told(self):
        kinds = ["kill", "resize", "drain", "move", "zone", "catalog", "rot"]
        self.assertEqual(nemesis.possible(self.cluster(), kinds), ["kill", "rot", "drain", "move"])
        self.assertEqual(sum(nemesis.lacking(self.cluster(), kinds).values(), []), ["resize", "zone", "catalog"])
        there = self.cluster(spares=2, zones="aab", etcd=object(), store="file:///bucket")
        self.assertEqual(nemesis.lacking(there, kinds), {nemesis.LACKS["disks"]: ["rot"]})
        self.assertEqual(nemesis.lacking(self.cluster(nodes=5, etcd=object()), kinds), {})
        theirs = nemesis.lacking(self.cluster(nodes=5, etcd=object(), is_nats=True), kinds)
        self.assertEqual(sorted(sum(theirs.values(), [])), ["catalog", "drain", "move", "resize", "zone"])

    def test_what_is_acknowledged_while_nothing_may_be(self):
        history = History()
        history.publishes = [Publish("before", 1, 4, 1), Publish("meanwhile", 3, 4, 2), Publish("after", 3, 6, 3), Publish("unknown", 3)]
        history.jobs = [Publish("job", 4, 4.5, 1)]
        played = nemesis.Nemesis(None, None, [], history)
        self.assertEqual([one.key for one in played.acknowledged(2, 5)], ["meanwhile", "job"])


if __name__ == "__main__":
    unittest.main()
