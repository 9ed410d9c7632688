import io.nats.client.ConsumerContext;
import io.nats.client.Message;
import io.nats.client.api.ConsumerConfiguration;
import java.util.List;
import java.util.function.UnaryOperator;

/** P05 to P11: nak, term, in-progress, ack wait, max_deliver, backoff. */
final class Redelivery {
    static final List<Harness.Scenario> SCENARIOS = List.of(
        new Harness.Scenario("P05", Redelivery::nak),
        new Harness.Scenario("P06", Redelivery::nakDelay),
        new Harness.Scenario("P07", Redelivery::term),
        new Harness.Scenario("P08", Redelivery::inProgress),
        new Harness.Scenario("P09", Redelivery::ackWait),
        new Harness.Scenario("P10", Redelivery::maxDeliver),
        new Harness.Scenario("P11", Redelivery::backoff));

    private Redelivery() {}

    private record Delivery(ConsumerContext consumer, Message msg) {}

    /** A stream with one message, its consumer, and the first delivery. */
    private static Delivery oneMessage(Harness.Ctx c, UnaryOperator<ConsumerConfiguration.Builder> with)
        throws Exception {
        String stream = c.stream();
        c.put(c.low + ".a", "x");
        return again(c.consumer(stream, "c", with), 1);
    }

    /** The next delivery, which must have this count. */
    private static Delivery again(ConsumerContext consumer, long count) throws Exception {
        Message msg = Harness.fetchOne(consumer);
        Harness.equal(msg.metaData().deliveredCount(), count, "delivered");
        return new Delivery(consumer, msg);
    }

    private static void nak(Harness.Ctx c) throws Exception {
        Delivery first = oneMessage(c, b -> b);
        long began = System.nanoTime();
        first.msg().nak();
        again(first.consumer(), 2);
        Harness.check(Harness.elapsedMs(began) < Harness.TIMEOUT_MS / 3, "redelivered late");
    }

    private static void nakDelay(Harness.Ctx c) throws Exception {
        Delivery first = oneMessage(c, b -> b);
        long began = System.nanoTime();
        first.msg().nakWithDelay(700);
        again(first.consumer(), 2);
        long tookMs = Harness.elapsedMs(began);
        Harness.check(tookMs >= 600 && tookMs < Harness.TIMEOUT_MS / 3, "took " + tookMs + " ms");
    }

    private static void term(Harness.Ctx c) throws Exception {
        Delivery first = oneMessage(c, b -> b.ackWait(500));
        first.msg().term();
        Harness.nothingMore(first.consumer(), 1_500);
        Harness.equal(Pull.floorAndPending(first.consumer()), List.of(1L, 0L), "info");
    }

    private static void inProgress(Harness.Ctx c) throws Exception {
        Delivery first = oneMessage(c, b -> b.ackWait(5_000));
        for (int i = 0; i < 2; i++) {
            Thread.sleep(3_000);
            first.msg().inProgress();
        }
        Harness.nothingMore(first.consumer(), 2_000);
        first.msg().ackSync(Harness.TIMEOUT);
        Harness.equal(first.consumer().getConsumerInfo().getNumAckPending(), 0L, "num_ack_pending");
    }

    private static void ackWait(Harness.Ctx c) throws Exception {
        Delivery first = oneMessage(c, b -> b.ackWait(500));
        Delivery second = again(first.consumer(), 2);
        Harness.equal(first.consumer().getConsumerInfo().getRedelivered(), 1L, "num_redelivered");
        second.msg().ackSync(Harness.TIMEOUT);
        Harness.equal(first.consumer().getConsumerInfo().getRedelivered(), 0L, "after the ack");
    }

    private static void maxDeliver(Harness.Ctx c) throws Exception {
        List<Message> advisories = Core.gather(c.nc, "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.P10.c", null);
        Delivery first = oneMessage(c, b -> b.ackWait(500).maxDeliver(2));
        again(first.consumer(), 2);
        Harness.nothingMore(first.consumer(), 1_500);
        Harness.until("the advisory", () -> !advisories.isEmpty());
        Harness.equal(advisories.size(), 1, "advisories");
        String json = Harness.text(advisories.get(0).getData()).replaceAll("\\s", "");
        for (String part : List.of("\"stream\":\"P10\"", "\"consumer\":\"c\"", "\"stream_seq\":1", "\"deliveries\":2")) {
            Harness.check(json.contains(part + ",") || json.contains(part + "}"), part + " not in " + json);
        }
    }

    private static void backoff(Harness.Ctx c) throws Exception {
        long began = System.nanoTime();
        Delivery first = oneMessage(c, b -> b.backoff(300L, 1_000L).maxDeliver(3));
        again(first.consumer(), 2);
        long tookMs = Harness.elapsedMs(began);
        Harness.check(tookMs >= 250, "delivery 2 after " + tookMs + " ms");
        again(first.consumer(), 3);
        tookMs = Harness.elapsedMs(began);
        Harness.check(tookMs >= 1_250, "delivery 3 after " + tookMs + " ms");
        Harness.nothingMore(first.consumer(), 1_500);
    }
}
