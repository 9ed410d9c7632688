import io.nats.client.ConsumerContext;
import io.nats.client.FetchConsumeOptions;
import io.nats.client.Message;
import io.nats.client.MessageConsumer;
import io.nats.client.PurgeOptions;
import io.nats.client.api.AckPolicy;
import io.nats.client.api.ConsumerConfiguration;
import io.nats.client.api.ConsumerInfo;
import io.nats.client.api.DeliverPolicy;
import io.nats.client.impl.Headers;
import io.nats.client.impl.NatsJetStreamMetaData;
import java.time.Duration;
import java.time.ZonedDateTime;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.function.UnaryOperator;
import java.util.stream.Collectors;

/** P01 to P04, P12 to P23: pull consumers apart from redelivery. */
final class Pull {
    static final List<Harness.Scenario> SCENARIOS = List.of(
        new Harness.Scenario("P01", Pull::explicitAck),
        new Harness.Scenario("P02", Pull::noWait),
        new Harness.Scenario("P03", Pull::expires),
        new Harness.Scenario("P04", Pull::maxBytes),
        new Harness.Scenario("P12", Pull::doubleAck),
        new Harness.Scenario("P13", Pull::maxAckPending),
        new Harness.Scenario("P14", Pull::filters),
        new Harness.Scenario("P15", Pull::headersOnly),
        new Harness.Scenario("P16", Pull::deliverPolicies),
        new Harness.Scenario("P17", Pull::ackAllAndNone),
        new Harness.Scenario("P18", Pull::ephemeral),
        new Harness.Scenario("P19", Pull::lifeCycle),
        new Harness.Scenario("P20", Pull::exactPending),
        new Harness.Scenario("P21", Pull::continuous),
        new Harness.Scenario("P22", Pull::deletedWhileWaiting),
        new Harness.Scenario("P23", Pull::twoFetchers));

    private Pull() {}

    private static long pending(ConsumerContext consumer) throws Exception {
        return consumer.getConsumerInfo().getNumPending();
    }

    /** The stream sequence of the ack floor, then the number of messages that wait for an ack. */
    static List<Long> floorAndPending(ConsumerContext consumer) throws Exception {
        ConsumerInfo info = consumer.getConsumerInfo();
        return List.of(info.getAckFloor().getStreamSequence(), info.getNumAckPending());
    }

    /** Waits until the (asynchronous) acks are counted, then compares exactly. */
    private static void ackedUpTo(ConsumerContext consumer, long floor, long left) throws Exception {
        Harness.until("ack floor " + floor, () -> floorAndPending(consumer).equals(List.of(floor, 0L)));
        Harness.equal(pending(consumer), left, "num_pending");
    }

    private static void explicitAck(Harness.Ctx c) throws Exception {
        String stream = c.stream();
        c.putMany("p01.a", 10);
        ConsumerContext consumer = c.consumer(stream);
        int first = 0;
        for (int batch : new int[] {4, 6}) {
            List<Message> msgs = Harness.fetch(consumer, batch, Harness.TIMEOUT_MS);
            Harness.equal(Harness.numbers(msgs), Harness.span(first, first + batch), "messages");
            long seq = first;
            for (Message msg : msgs) {
                seq++;
                NatsJetStreamMetaData meta = msg.metaData();
                Harness.equal(List.of(meta.getStream(), meta.getConsumer()), List.of(stream, "c"), "names");
                Harness.equal(
                    List.of(meta.streamSequence(), meta.consumerSequence(), meta.deliveredCount(), meta.pendingCount()),
                    List.of(seq, seq, 1L, 10 - seq), "metadata");
                msg.ack();
            }
            first += batch;
            ackedUpTo(consumer, first, 10 - first);
        }
    }

    private static void noWait(Harness.Ctx c) throws Exception {
        ConsumerContext consumer = c.consumer(c.stream());
        for (int count : new int[] {0, 3}) {
            c.putMany("p02.a", count);
            long began = System.nanoTime();
            FetchConsumeOptions options = FetchConsumeOptions.builder().maxMessages(10).noWait().build();
            Harness.equal(Harness.fetch(consumer, options).size(), count, "messages");
            Harness.check(Harness.elapsedMs(began) < Harness.TIMEOUT_MS / 3, "took as long as a fetch that waits");
        }
    }

    private static void expires(Harness.Ctx c) throws Exception {
        String stream = c.stream();
        c.putMany("p03.a", 3);
        ConsumerContext consumer = c.consumer(stream);
        long began = System.nanoTime();
        Harness.equal(Harness.numbers(Harness.fetch(consumer, 10, 3_000)), Harness.span(0, 3), "messages");
        long tookMs = Harness.elapsedMs(began);
        Harness.check(tookMs >= 2_800 && tookMs < Harness.TIMEOUT_MS / 2, "took " + tookMs + " ms");
    }

    private static void maxBytes(Harness.Ctx c) throws Exception {
        String stream = c.stream();
        for (int i = 0; i < 10; i++) {
            c.js.publish("p04.a", new byte[1_000]);
        }
        ConsumerContext consumer = c.consumer(stream);
        FetchConsumeOptions options = FetchConsumeOptions.builder().maxBytes(3_500).expiresIn(3_000).build();
        int got = Harness.fetch(consumer, options).size();
        Harness.check(got >= 1 && got <= 3, got + " messages");
        Harness.equal(Harness.fetch(consumer, 10 - got, Harness.TIMEOUT_MS).size(), 10 - got, "the others");
    }

    private static void doubleAck(Harness.Ctx c) throws Exception {
        String stream = c.stream();
        c.putMany("p12.a", 1);
        ConsumerContext consumer = c.consumer(stream);
        Harness.fetchOne(consumer).ackSync(Harness.TIMEOUT);
        Harness.equal(floorAndPending(consumer), List.of(1L, 0L), "info after the double ack");
    }

    private static void maxAckPending(Harness.Ctx c) throws Exception {
        String stream = c.stream();
        c.putMany("p13.a", 10);
        ConsumerContext consumer = c.consumer(stream, "c", b -> b.maxAckPending(5));
        List<Message> first = Harness.fetch(consumer, 10, 3_000);
        Harness.equal(Harness.numbers(first), Harness.span(0, 5), "first");
        for (Message msg : first) {
            msg.ackSync(Harness.TIMEOUT);
        }
        Harness.equal(Harness.numbers(Harness.fetch(consumer, 5, Harness.TIMEOUT_MS)), Harness.span(5, 10), "second");
    }

    private static void filters(Harness.Ctx c) throws Exception {
        String stream = c.stream();
        for (int i = 0; i < 12; i++) {
            c.put("p14." + "abc".charAt(i % 3), i);
        }
        ConsumerContext one = c.consumer(stream, "one", b -> b.filterSubject("p14.b"));
        Harness.equal(pending(one), 4L, "num_pending of one");
        Harness.equal(Harness.numbers(Harness.fetch(one, 4, Harness.TIMEOUT_MS)), List.of(1, 4, 7, 10), "one filter");
        ConsumerContext two = c.consumer(stream, "two", b -> b.filterSubjects("p14.a", "p14.c"));
        Harness.equal(pending(two), 8L, "num_pending of two");
        Harness.equal(Harness.numbers(Harness.fetch(two, 8, Harness.TIMEOUT_MS)), List.of(0, 2, 3, 5, 6, 8, 9, 11), "two filters");
        Harness.expectCode(10138, () -> c.consumer(stream, "x", b -> b.filterSubjects("p14.a", "p14.>")));
    }

    private static void headersOnly(Harness.Ctx c) throws Exception {
        String stream = c.stream();
        c.js.publish("p15.a", new Headers().put("Kept", "yes"), new byte[123]);
        Message msg = Harness.fetchOne(c.consumer(stream, "c", b -> b.headersOnly(true)));
        Harness.equal(Harness.text(msg.getData()), "", "payload");
        Headers h = msg.getHeaders();
        Harness.equal(List.of(h.getFirst("Nats-Msg-Size"), h.getFirst("Kept")), List.of("123", "yes"), "headers");
    }

    private record Policy(String name, List<Long> want, UnaryOperator<ConsumerConfiguration.Builder> with) {}

    private static void deliverPolicies(Harness.Ctx c) throws Exception {
        String stream = c.stream();
        for (String tail : List.of("a", "b", "c", "a")) {
            c.put("p16." + tail, "x");
        }
        Thread.sleep(100);
        ZonedDateTime middle = ZonedDateTime.now();
        Thread.sleep(100);
        for (String tail : List.of("b", "a")) {
            c.put("p16." + tail, "x");
        }
        List<Policy> policies = List.of(
            new Policy("all", List.of(1L, 2L, 3L, 4L, 5L, 6L), b -> b.deliverPolicy(DeliverPolicy.All)),
            new Policy("last", List.of(6L), b -> b.deliverPolicy(DeliverPolicy.Last)),
            new Policy("seq", List.of(4L, 5L, 6L), b -> b.deliverPolicy(DeliverPolicy.ByStartSequence).startSequence(4)),
            new Policy("time", List.of(5L, 6L), b -> b.deliverPolicy(DeliverPolicy.ByStartTime).startTime(middle)),
            new Policy("per", List.of(3L, 5L, 6L),
                b -> b.deliverPolicy(DeliverPolicy.LastPerSubject).filterSubject("p16.*")));
        for (Policy policy : policies) {
            ConsumerContext consumer = c.consumer(stream, policy.name(), policy.with());
            Harness.equal(pending(consumer), (long) policy.want().size(), "num_pending of " + policy.name());
            List<Message> got = Harness.fetch(consumer, policy.want().size(), Harness.TIMEOUT_MS);
            Harness.equal(Harness.sequences(got), policy.want(), policy.name());
        }
        ConsumerContext consumer = c.consumer(stream, "new", b -> b.deliverPolicy(DeliverPolicy.New));
        Harness.nothingMore(consumer, 1_000);
        c.put("p16.z", "x");
        Harness.equal(Harness.fetchOne(consumer).metaData().streamSequence(), 7L, "new");
    }

    private static void ackAllAndNone(Harness.Ctx c) throws Exception {
        String stream = c.stream();
        c.putMany("p17.a", 10);
        ConsumerContext every = c.consumer(stream, "all", b -> b.ackPolicy(AckPolicy.All));
        Harness.fetch(every, 10, Harness.TIMEOUT_MS).get(4).ackSync(Harness.TIMEOUT);
        Harness.equal(floorAndPending(every), List.of(5L, 5L), "ack all");
        ConsumerContext none = c.consumer(stream, "none", b -> b.ackPolicy(AckPolicy.None));
        Harness.equal(Harness.fetch(none, 10, Harness.TIMEOUT_MS).size(), 10, "ack none");
        ConsumerInfo info = none.getConsumerInfo();
        Harness.equal(List.of(info.getNumAckPending(), info.getNumPending()), List.of(0L, 0L), "ack none");
    }

    private static void ephemeral(Harness.Ctx c) throws Exception {
        String stream = c.stream();
        String name = c.jsm.createConsumer(stream,
            ConsumerConfiguration.builder().inactiveThreshold(Duration.ofSeconds(1)).build()).getName();
        Harness.until("ephemeral consumer removed", () -> !c.jsm.getConsumerNames(stream).contains(name));
        Harness.expectCode(10014, () -> c.jsm.getConsumerInfo(stream, name));
    }

    private static void lifeCycle(Harness.Ctx c) throws Exception {
        String stream = c.stream();
        ConsumerConfiguration config = c.consumer(stream, "c", b -> b.description("first").ackWait(3_000))
            .getConsumerInfo().getConsumerConfiguration();
        Harness.equal(List.of(config.getDurable(), config.getDescription(), config.getAckWait()),
            List.of("c", "first", Duration.ofSeconds(3)), "made");
        c.consumer(stream, "d", b -> b);
        Harness.equal(new TreeSet<>(c.jsm.getConsumerNames(stream)), new TreeSet<>(List.of("c", "d")), "names");
        Harness.equal(c.jsm.getConsumers(stream).stream().map(ConsumerInfo::getName).sorted().collect(Collectors.toList()),
            List.of("c", "d"), "list");
        ConsumerConfiguration second =
            ConsumerConfiguration.builder(config).description("second").maxAckPending(7).build();
        c.jsm.updateConsumer(stream, second);
        ConsumerConfiguration updated = c.jsm.getConsumerInfo(stream, "c").getConsumerConfiguration();
        Harness.equal(List.of(updated.getDescription(), updated.getMaxAckPending()), List.of("second", 7L), "after the update");
        Harness.expectCode(10012, () -> c.jsm.updateConsumer(stream,
            ConsumerConfiguration.builder(second).deliverPolicy(DeliverPolicy.New).build()));
        Harness.expectCode(10148,
            () -> c.jsm.createConsumer(stream, ConsumerConfiguration.builder(second).description("third").build()));
        Harness.expectCode(10149,
            () -> c.jsm.updateConsumer(stream, ConsumerConfiguration.builder().durable("missing").build()));
        Harness.check(c.jsm.deleteConsumer(stream, "c"), "delete");
        Harness.expectCode(10014, () -> c.jsm.getConsumerInfo(stream, "c"));
        Harness.expectCode(10014, () -> c.jsm.deleteConsumer(stream, "c"));
    }

    private static void exactPending(Harness.Ctx c) throws Exception {
        String stream = c.stream();
        for (int i = 0; i < 100; i++) {
            c.put("p20." + i % 2, i);
        }
        ConsumerInfo made = c.jsm.createConsumer(stream,
            ConsumerConfiguration.builder().durable("c").filterSubject("p20.1").build());
        Harness.equal(made.getNumPending(), 50L, "at creation");
        ConsumerContext consumer = c.nc.getConsumerContext(stream, "c");
        for (int seq = 52; seq < 72; seq += 2) {
            c.jsm.deleteMessage(stream, seq);
        }
        Harness.equal(pending(consumer), 40L, "after the deletes");
        long left = 40;
        for (Message msg : Harness.fetch(consumer, 10, Harness.TIMEOUT_MS)) {
            left--;
            Harness.equal(msg.metaData().pendingCount(), left, "in the metadata");
        }
        Harness.equal(pending(consumer), 30L, "after the partial read");
        c.jsm.purgeStream(stream, PurgeOptions.builder().subject("p20.1").sequence(80).build());
        Harness.equal(pending(consumer), 11L, "after the purge below sequence 80");
        c.jsm.purgeStream(stream, PurgeOptions.subject("p20.1"));
        Harness.equal(pending(consumer), 0L, "after the purge");
    }

    private static void continuous(Harness.Ctx c) throws Exception {
        int count = 2_000;
        String stream = c.stream();
        c.putAsync("p21.a", count, Harness::bytes);
        ConsumerContext consumer = c.consumer(stream);
        List<Integer> got = Harness.synced();
        try (MessageConsumer running = consumer.consume(msg -> {
            got.add(Harness.number(msg));
            msg.ack();
        })) {
            Harness.until("all messages", () -> got.size() >= count);
            ackedUpTo(consumer, count, 0);
        }
        Harness.equal(Harness.copy(got), Harness.span(0, count), "messages");
    }

    private static void deletedWhileWaiting(Harness.Ctx c) throws Exception {
        String stream = c.stream();
        ConsumerContext consumer = c.consumer(stream);
        long began = System.nanoTime();
        CompletableFuture<Integer> waiting = CompletableFuture.supplyAsync(() -> {
            try {
                return Harness.fetch(consumer, 5, Harness.TIMEOUT_MS).size();
            } catch (Exception ended) {
                return 0;
            }
        });
        Thread.sleep(300);
        c.jsm.deleteConsumer(stream, "c");
        Harness.equal(waiting.get(), 0, "messages");
        Harness.check(Harness.elapsedMs(began) < Harness.TIMEOUT_MS / 2, "the fetch did not end early");
    }

    /** Fetches and acks until a fetch gives nothing. */
    private static List<Integer> fetchAll(Harness.Ctx c, String stream) {
        List<Integer> got = new ArrayList<>();
        try {
            ConsumerContext consumer = c.nc.getConsumerContext(stream, "c");
            for (;;) {
                List<Message> msgs = Harness.fetch(consumer, 20, 3_000);
                if (msgs.isEmpty()) {
                    return got;
                }
                for (Message msg : msgs) {
                    got.add(Harness.number(msg));
                    msg.ack();
                }
            }
        } catch (Harness.Lost lost) {
            throw lost;
        } catch (Exception err) {
            throw new Harness.Failed(err.toString());
        }
    }

    private static void twoFetchers(Harness.Ctx c) throws Exception {
        String stream = c.stream();
        c.putMany("p23.a", 500);
        c.consumer(stream);
        CompletableFuture<List<Integer>> one = CompletableFuture.supplyAsync(() -> fetchAll(c, stream));
        CompletableFuture<List<Integer>> two = CompletableFuture.supplyAsync(() -> fetchAll(c, stream));
        List<Integer> all = new ArrayList<>(one.get());
        all.addAll(two.get());
        Harness.equal(Harness.sortedCopy(all), Harness.span(0, 500), "messages");
    }
}
