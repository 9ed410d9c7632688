import io.nats.client.ConsumerContext;
import io.nats.client.JetStreamApiException;
import io.nats.client.api.ConsumerConfiguration;
import io.nats.client.api.DiscardPolicy;
import io.nats.client.api.PublishAck;
import io.nats.client.api.RetentionPolicy;
import io.nats.client.api.StreamConfiguration;
import io.nats.client.api.StreamState;
import io.nats.client.impl.Headers;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/** S12 to S18: stream limits, discard and retention policies, rollups, deny flags. */
final class Limits {
    static final List<Harness.Scenario> SCENARIOS = List.of(
        new Harness.Scenario("S12", Limits::discardOld),
        new Harness.Scenario("S13", Limits::maxAge),
        new Harness.Scenario("S14", Limits::refusals),
        new Harness.Scenario("S15", Limits::interest),
        new Harness.Scenario("S16", Limits::workQueue),
        new Harness.Scenario("S17", Limits::rollup),
        new Harness.Scenario("S18", Limits::denyAndSeal));

    private Limits() {}

    /** The payload numbers that are still in the stream, in order. */
    private static List<Integer> kept(Harness.Ctx c, String stream) throws Exception {
        StreamState s = c.state(stream);
        List<Integer> out = new ArrayList<>();
        for (long seq = s.getFirstSequence(); seq <= s.getLastSequence(); seq++) {
            try {
                out.add(Integer.parseInt(Harness.text(c.jsm.getMessage(stream, seq).getData())));
            } catch (JetStreamApiException missing) {
                Harness.equal(missing.getApiErrorCode(), 10037, "error of a removed message");
            }
        }
        return out;
    }

    private static long messages(Harness.Ctx c, String stream) throws Exception {
        return c.state(stream).getMsgCount();
    }

    private static void discardOld(Harness.Ctx c) throws Exception {
        String byMsgs = c.stream("A", b -> b.maxMessages(5));
        c.putMany("s12a.x", 10);
        Harness.equal(kept(c, byMsgs), Harness.span(5, 10), "max_msgs");

        String byBytes = c.stream("B", b -> b.maxBytes(2_000));
        for (int i = 0; i < 10; i++) {
            c.put("s12b.x", String.format("%0500d", i));
        }
        long bytes = c.state(byBytes).getByteCount();
        Harness.check(bytes <= 2_000, "bytes " + bytes);
        List<Integer> left = kept(c, byBytes);
        Harness.check(!left.isEmpty() && left.size() <= 4, "kept " + left);
        Harness.equal(left, Harness.span(10 - left.size(), 10), "max_bytes keeps the newest");

        String bySubject = c.stream("C", b -> b.maxMessagesPerSubject(2));
        for (int i = 0; i < 10; i++) {
            c.put("s12c." + i % 2, i);
        }
        Harness.equal(kept(c, bySubject), Harness.span(6, 10), "max_msgs_per_subject");
    }

    private static void maxAge(Harness.Ctx c) throws Exception {
        String stream = c.stream("", b -> b.maxAge(Duration.ofSeconds(4)).duplicateWindow(1_000));
        c.putMany("s13.a", 3);
        Harness.equal(messages(c, stream), 3L, "messages at first");
        Harness.until("messages expire", () -> messages(c, stream) == 0);
        Harness.equal(c.state(stream).getLastSequence(), 3L, "last_seq");
    }

    private static void refusals(Harness.Ctx c) throws Exception {
        c.stream("A", b -> b.maximumMessageSize(100));
        Harness.expectCode(10054, () -> c.js.publish("s14a.x", new byte[101]));
        Harness.equal(c.js.publish("s14a.x", new byte[100]).getSeqno(), 1L, "at the limit");

        String byMsgs = c.stream("B", b -> b.maxMessages(2).discardPolicy(DiscardPolicy.New));
        c.putMany("s14b.x", 2);
        Harness.expectCode(10077, () -> c.put("s14b.x", "x"));
        Harness.equal(kept(c, byMsgs), List.of(0, 1), "max_msgs keeps the oldest");

        String byBytes = c.stream("C", b -> b.maxBytes(500).discardPolicy(DiscardPolicy.New));
        c.js.publish("s14c.x", new byte[200]);
        Harness.expectCode(10077, () -> c.js.publish("s14c.x", new byte[400]));
        Harness.equal(messages(c, byBytes), 1L, "max_bytes");

        c.stream("D", b -> b.maxMessagesPerSubject(1).discardPolicy(DiscardPolicy.New).discardNewPerSubject(true));
        c.put("s14d.x", 0);
        Harness.expectCode(10077, () -> c.put("s14d.x", 1));
        Harness.equal(c.put("s14d.y", 2).getSeqno(), 2L, "another subject");
    }

    private static void ackOne(ConsumerContext consumer) throws Exception {
        Harness.fetchOne(consumer).ackSync(Harness.TIMEOUT);
    }

    private static void interest(Harness.Ctx c) throws Exception {
        String stream = c.stream("", b -> b.retentionPolicy(RetentionPolicy.Interest));
        Harness.equal(c.put("s15.a", "nobody").getSeqno(), 1L, "sequence without interest");
        Harness.equal(messages(c, stream), 0L, "stored without interest");
        ConsumerContext one = c.consumer(stream, "one", b -> b);
        ConsumerContext two = c.consumer(stream, "two", b -> b);
        c.put("s15.a", "x");
        ackOne(one);
        Harness.equal(messages(c, stream), 1L, "after the first ack");
        ackOne(two);
        Harness.until("gone after the second ack", () -> messages(c, stream) == 0);
    }

    private static void workQueue(Harness.Ctx c) throws Exception {
        String stream = c.stream("", b -> b.retentionPolicy(RetentionPolicy.WorkQueue));
        ConsumerContext a = c.consumer(stream, "a", b -> b.filterSubject("s16.a.*"));
        c.consumer(stream, "b", b -> b.filterSubject("s16.b"));
        Harness.expectCode(10099,
            () -> c.jsm.createConsumer(stream, ConsumerConfiguration.builder().durable("all").build()));
        Harness.expectCode(10100, () -> c.jsm.createConsumer(stream,
            ConsumerConfiguration.builder().durable("o").filterSubject("s16.a.1").build()));
        c.put("s16.a.1", "x");
        c.put("s16.b", "y");
        ackOne(a);
        Harness.until("acked message is gone", () -> messages(c, stream) == 1);
        Harness.equal(Harness.text(c.jsm.getLastMessage(stream, "s16.b").getData()), "y", "the other one stays");
    }

    private static PublishAck rolled(Harness.Ctx c, String subject, int body, String how) throws Exception {
        return c.js.publish(subject, new Headers().put("Nats-Rollup", how), Harness.bytes(body));
    }

    private static void rollup(Harness.Ctx c) throws Exception {
        String stream = c.stream("", b -> b.allowRollup(true));
        for (int i = 0; i < 6; i++) {
            c.put("s17." + i % 2, i);
        }
        rolled(c, "s17.0", 6, "sub");
        Harness.equal(kept(c, stream), List.of(1, 3, 5, 6), "rollup sub");
        rolled(c, "s17.1", 7, "all");
        Harness.equal(kept(c, stream), List.of(7), "rollup all");
        c.stream("X", b -> b);
        Harness.expectCode(10111, () -> rolled(c, "s17x.a", 8, "sub"));
    }

    private static void denyAndSeal(Harness.Ctx c) throws Exception {
        String deny = c.stream("A", b -> b.denyDelete(true).denyPurge(true));
        c.put("s18a.x", "x");
        Harness.expectCode(10057, () -> c.jsm.deleteMessage(deny, 1));
        Harness.expectCode(10110, () -> c.jsm.purgeStream(deny));
        String sealed = c.stream("B", b -> b);
        c.put("s18b.x", "x");
        StreamConfiguration config = c.jsm.getStreamInfo(sealed).getConfiguration();
        Harness.check(c.jsm.updateStream(StreamConfiguration.builder(config).seal().build()).getConfiguration().getSealed(),
            "sealed");
        Harness.expectCode(10109, () -> c.put("s18b.x", "y"));
        Harness.equal(messages(c, sealed), 1L, "messages");
    }
}
