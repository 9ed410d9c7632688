import io.nats.client.Connection;
import io.nats.client.ConsumeOptions;
import io.nats.client.IterableConsumer;
import io.nats.client.JetStreamSubscription;
import io.nats.client.Message;
import io.nats.client.OrderedConsumerContext;
import io.nats.client.PushSubscribeOptions;
import io.nats.client.Subscription;
import io.nats.client.api.AckPolicy;
import io.nats.client.api.ConsumerConfiguration;
import io.nats.client.api.ConsumerInfo;
import io.nats.client.api.DeliverPolicy;
import io.nats.client.api.OrderedConsumerConfiguration;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;

/** D01 to D07: push consumers, flow control, heartbeats, ordered consumers. */
final class Push {
    static final List<Harness.Scenario> SCENARIOS = List.of(
        new Harness.Scenario("D01", Push::durable),
        new Harness.Scenario("D02", Push::deliverGroup),
        new Harness.Scenario("D03", 360, Push::flowControl),
        new Harness.Scenario("D04", Push::heartbeats),
        new Harness.Scenario("D05", 360, Push::ordered),
        new Harness.Scenario("D06", 360, Push::fiveMegabytes),
        new Harness.Scenario("D07", Push::orderedFiltered));

    private static final int FIVE_MB = 5_000_000;

    private Push() {}

    private static Message next(Subscription sub) throws Exception {
        Message msg = sub.nextMessage(Harness.TIMEOUT);
        Harness.check(msg != null, "nothing within 5 s");
        return msg;
    }

    private static Message next(IterableConsumer consumer) throws Exception {
        Message msg = consumer.nextMessage(Harness.TIMEOUT);
        Harness.check(msg != null, "nothing within 5 s");
        return msg;
    }

    private static void durable(Harness.Ctx c) throws Exception {
        String stream = c.stream();
        c.putMany("d01.a", 100);
        PushSubscribeOptions options = PushSubscribeOptions.builder().stream(stream).durable("c").build();
        JetStreamSubscription sub = c.js.subscribe("d01.a", options);
        for (int i = 0; i < 100; i++) {
            Message msg = next(sub);
            Harness.equal(Harness.number(msg), i, "message");
            msg.ack();
        }
        Harness.until("100 messages acked", () -> sub.getConsumerInfo().getNumAckPending() == 0);
        ConsumerInfo info = sub.getConsumerInfo();
        Harness.equal(List.of(info.getAckFloor().getStreamSequence(), info.isPushBound()), List.of(100L, true), "info");
    }

    private static void deliverGroup(Harness.Ctx c) throws Exception {
        String stream = c.stream();
        List<List<Integer>> members = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            Connection nc = c.connect();
            List<Integer> got = Harness.synced();
            PushSubscribeOptions options = PushSubscribeOptions.builder().stream(stream).durable("workers").build();
            nc.jetStream().subscribe("d02.a", "workers", nc.createDispatcher(), msg -> {
                got.add(Harness.number(msg));
                msg.ack();
            }, false, options);
            nc.flush(Harness.TIMEOUT);
            members.add(got);
        }
        c.putMany("d02.a", 300);
        Harness.until("300 messages", () -> members.stream().mapToInt(List::size).sum() >= 300);
        Thread.sleep(200);
        List<Integer> all = new ArrayList<>();
        for (List<Integer> member : members) {
            Harness.check(!member.isEmpty(), "a member got nothing");
            all.addAll(Harness.copy(member));
        }
        Harness.equal(Harness.sortedCopy(all), Harness.span(0, 300), "messages");
    }

    private static void flowControl(Harness.Ctx c) throws Exception {
        int count = 40_000;
        String stream = c.stream();
        c.putAsync("d03.a", count, i -> Harness.bytes(String.format("%0512d", i)));
        ConsumerConfiguration config = ConsumerConfiguration.builder().durable("c").ackPolicy(AckPolicy.None)
            .flowControl(1_000).build();
        JetStreamSubscription sub = c.js.subscribe("d03.a",
            PushSubscribeOptions.builder().stream(stream).configuration(config).build());
        for (int i = 0; i < count; i++) {
            Harness.equal(Harness.number(next(sub)), i, "message");
        }
    }

    private static void heartbeats(Harness.Ctx c) throws Exception {
        String stream = c.stream();
        String inbox = c.nc.createInbox();
        Subscription sub = c.nc.subscribe(inbox);
        c.jsm.createConsumer(stream,
            ConsumerConfiguration.builder().durable("c").deliverSubject(inbox).idleHeartbeat(200).build());
        for (int i = 0; i < 3; i++) {
            Message msg = sub.nextMessage(Harness.TIMEOUT);
            Harness.check(msg != null, "no heartbeat");
            Harness.check(msg.isStatusMessage(), "not a status message");
            Harness.equal(msg.getStatus().getCode(), 100, "status");
            Harness.equal(List.of(msg.getHeaders().getFirst("Nats-Last-Consumer"),
                msg.getHeaders().getFirst("Nats-Last-Stream")), List.of("0", "0"), "sequences");
        }
    }

    private static void ordered(Harness.Ctx c) throws Exception {
        int count = 200_000;
        String stream = c.stream();
        c.putAsync("d05.a", count, i -> Harness.bytes(String.format("%064d", i)));
        JetStreamSubscription sub = c.js.subscribe("d05.a",
            PushSubscribeOptions.builder().stream(stream).ordered(true).build());
        for (int i = 0; i < count; i++) {
            Message msg = next(sub);
            long seq = msg.metaData().streamSequence();
            if (seq != i + 1 || Harness.number(msg) != i) {
                Harness.equal(List.of(seq, Harness.number(msg)), List.of(i + 1L, i), "sequence and payload");
            }
        }
        sub.unsubscribe();
    }

    private static void fiveMegabytes(Harness.Ctx c) throws Exception {
        if (c.nc.getMaxPayload() < FIVE_MB) {
            throw new Harness.Skip("the server's max_payload is " + c.nc.getMaxPayload());
        }
        String stream = c.stream();
        for (long i = 0; i < 100; i++) {
            byte[] body = new byte[FIVE_MB];
            ByteBuffer.wrap(body).putLong(0, i).putLong(FIVE_MB - 8, i);
            Harness.equal(c.js.publish("d06.a", body).getSeqno(), i + 1, "sequence");
        }
        OrderedConsumerContext ordered =
            c.nc.getStreamContext(stream).createOrderedConsumer(new OrderedConsumerConfiguration());
        try (IterableConsumer messages = ordered.iterate(ConsumeOptions.builder().batchSize(4).build())) {
            for (long i = 0; i < 100; i++) {
                byte[] data = next(messages).getData();
                Harness.equal(data.length, FIVE_MB, "length");
                ByteBuffer buffer = ByteBuffer.wrap(data);
                Harness.equal(List.of(buffer.getLong(0), buffer.getLong(FIVE_MB - 8)), List.of(i, i), "marks");
            }
        }
        Harness.equal(c.nc.getStatus(), Connection.Status.CONNECTED, "connection");
    }

    private static void orderedFiltered(Harness.Ctx c) throws Exception {
        String stream = c.stream();
        for (int i = 0; i < 20; i++) {
            c.put("d07." + i % 2, i);
        }
        OrderedConsumerContext ordered = c.nc.getStreamContext(stream).createOrderedConsumer(
            new OrderedConsumerConfiguration().filterSubject("d07.0").deliverPolicy(DeliverPolicy.ByStartSequence)
                .startSequence(11));
        try (IterableConsumer messages = ordered.iterate()) {
            for (int want : new int[] {10, 12, 14, 16, 18}) {
                Harness.equal(Harness.number(next(messages)), want, "stored message");
            }
            c.put("d07.1", 20);
            c.put("d07.0", 21);
            Harness.equal(Harness.number(next(messages)), 21, "new message");
        }
    }
}
