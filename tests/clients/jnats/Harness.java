import io.nats.client.Connection;
import io.nats.client.ConsumerContext;
import io.nats.client.ErrorListener;
import io.nats.client.FetchConsumeOptions;
import io.nats.client.FetchConsumer;
import io.nats.client.JetStream;
import io.nats.client.JetStreamApiException;
import io.nats.client.JetStreamManagement;
import io.nats.client.Message;
import io.nats.client.Nats;
import io.nats.client.Options;
import io.nats.client.PublishOptions;
import io.nats.client.api.ConsumerConfiguration;
import io.nats.client.api.ConsumerInfo;
import io.nats.client.api.PublishAck;
import io.nats.client.api.StreamConfiguration;
import io.nats.client.api.StreamState;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Locale;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.IntFunction;
import java.util.function.Predicate;
import java.util.function.UnaryOperator;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/** The scenario registry, the bounded runner and small assertions shared by the jnats scenarios. */
final class Harness {
    /**
     * How long anything may take that must come, and a scenario: machines may be slow. What comes late does not make a
     * scenario fail unless it says so; what must not come, or not too soon, does.
     */
    static final Duration TIMEOUT = Duration.ofSeconds(60);
    static final long TIMEOUT_MS = TIMEOUT.toMillis();
    static final int DEFAULT_LIMIT_S = 180;
    /** Publishes in flight at once. */
    static final int PUBLISH_WINDOW = 1_000;
    /** The shortest expiry that the client's fetch accepts. */
    static final long MIN_EXPIRES_MS = 1_000;

    private Harness() {}

    interface Body {
        void run(Ctx c) throws Exception;
    }

    interface Call {
        Object run() throws Exception;
    }

    interface Probe {
        boolean test() throws Exception;
    }

    /** One row of SCENARIOS.md. */
    record Scenario(String id, int limitS, Body body) {
        Scenario(String id, Body body) {
            this(id, DEFAULT_LIMIT_S, body);
        }
    }

    /** Thrown by a scenario whose heart this client cannot do. */
    static final class Skip extends RuntimeException {
        Skip(String why) {
            super(why);
        }
    }

    /**
     * Thrown when the client has ended a fetch that still waits, without a status. jnats 2.26.2 counts a message before it puts
     * it into its queue; whoever looks in between is told that the fetch is over, and the message is lost. It is seen on busy
     * machines only. The scenario is run again then, up to LOST_MAX times; the other clients would see a server that does this.
     */
    static final class Lost extends RuntimeException {
        Lost(String what) {
            super(what);
        }
    }

    static final int LOST_MAX = 3;
    /** A fetch that ends so much before its expiry has ended early. */
    private static final long EARLY_MS = 500;

    /** An observation that differs from the list. */
    static final class Failed extends RuntimeException {
        Failed(String what) {
            super(what);
        }
    }

    static void check(boolean cond, String what) {
        if (!cond) {
            throw new Failed(what);
        }
    }

    static void equal(Object got, Object want, String what) {
        if (!Objects.equals(got, want)) {
            throw new Failed(what + ": got " + brief(got) + ", want " + brief(want));
        }
    }

    private static String brief(Object value) {
        String text = String.valueOf(value);
        return text.length() <= 200 ? text : text.substring(0, 200) + "...";
    }

    /** The call must fail with an error that satisfies the predicate. */
    static void expectError(String what, Predicate<Throwable> is, Call call) {
        Object result;
        try {
            result = call.run();
        } catch (Exception err) {
            check(is.test(err), what + " expected, got " + err);
            return;
        }
        throw new Failed(what + " expected, got " + brief(result));
    }

    /** The call must fail with this JetStream err_code. */
    static void expectCode(int code, Call call) {
        expectError("error " + code, e -> e instanceof JetStreamApiException js && js.getApiErrorCode() == code, call);
    }

    /** Polls a predicate until it is true. */
    static void until(String what, Probe probe) throws Exception {
        long deadline = System.nanoTime() + TIMEOUT.toNanos();
        while (System.nanoTime() < deadline) {
            if (probe.test()) {
                return;
            }
            Thread.sleep(20);
        }
        throw new Failed("not within " + TIMEOUT_MS + " ms: " + what);
    }

    static long elapsedMs(long sinceNanos) {
        return TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - sinceNanos);
    }

    static byte[] bytes(Object value) {
        return String.valueOf(value).getBytes(StandardCharsets.UTF_8);
    }

    static String text(byte[] data) {
        return data == null ? "" : new String(data, StandardCharsets.UTF_8);
    }

    static int number(Message msg) {
        return Integer.parseInt(text(msg.getData()));
    }

    static List<Integer> numbers(List<Message> msgs) {
        return msgs.stream().map(Harness::number).collect(Collectors.toList());
    }

    static List<Long> sequences(List<Message> msgs) {
        return msgs.stream().map(m -> m.metaData().streamSequence()).collect(Collectors.toList());
    }

    static List<Integer> span(int from, int to) {
        return IntStream.range(from, to).boxed().collect(Collectors.toList());
    }

    static <T> List<T> synced() {
        return Collections.synchronizedList(new ArrayList<>());
    }

    /** A copy of a list that other threads fill. */
    static <T> List<T> copy(List<T> filling) {
        synchronized (filling) {
            return new ArrayList<>(filling);
        }
    }

    static List<Integer> sortedCopy(List<Integer> filling) {
        List<Integer> out = copy(filling);
        Collections.sort(out);
        return out;
    }

    /** Up to `count` messages of one fetch. */
    static List<Message> fetch(ConsumerContext consumer, int count, long expiresMs) throws Exception {
        long expires = Math.max(expiresMs, MIN_EXPIRES_MS);
        long began = System.nanoTime();
        List<Message> got = fetch(consumer, FetchConsumeOptions.builder().maxMessages(count).expiresIn(expires).build());
        if (got.size() < count && elapsedMs(began) < expires - EARLY_MS) {
            String when = got.size() + " messages and " + elapsedMs(began) + " ms";
            throw new Lost("a fetch of " + count + " has ended after " + when);
        }
        return got;
    }

    static List<Message> fetch(ConsumerContext consumer, FetchConsumeOptions options) throws Exception {
        List<Message> got = new ArrayList<>();
        try (FetchConsumer fetching = consumer.fetch(options)) {
            for (Message msg = fetching.nextMessage(); msg != null; msg = fetching.nextMessage()) {
                got.add(msg);
            }
        }
        return got;
    }

    static Message fetchOne(ConsumerContext consumer) throws Exception {
        List<Message> got = fetch(consumer, 1, TIMEOUT_MS);
        check(!got.isEmpty(), "no message within " + TIMEOUT_MS + " ms");
        return got.get(0);
    }

    static void nothingMore(ConsumerContext consumer, long withinMs) throws Exception {
        List<Message> got = fetch(consumer, 1, withinMs);
        check(got.isEmpty(), "unexpected message " + got);
    }

    /** One scenario's connections, and the streams to delete at its end. */
    static final class Ctx {
        final String id;
        final String low;
        final String url;
        Connection nc;
        JetStream js;
        JetStreamManagement jsm;
        private final List<Connection> conns = synced();
        private final List<String> streams = synced();

        Ctx(String url, String id) {
            this.url = url;
            this.id = id;
            this.low = id.toLowerCase(Locale.ROOT);
        }

        void open() throws Exception {
            nc = connect();
            js = nc.jetStream();
            jsm = nc.jetStreamManagement();
        }

        Connection connect() throws Exception {
            Connection made = Nats.connect(Options.builder().server(url).noReconnect().reportNoResponders()
                .connectionTimeout(TIMEOUT).errorListener(new ErrorListener() {}).build());
            conns.add(made);
            return made;
        }

        void owns(String stream) {
            streams.add(stream);
        }

        /** Creates a stream of this scenario and returns its name. */
        String stream(String suffix, UnaryOperator<StreamConfiguration.Builder> with) throws Exception {
            String name = id + suffix;
            owns(name);
            jsm.addStream(with.apply(StreamConfiguration.builder().name(name)
                .subjects(name.toLowerCase(Locale.ROOT) + ".>")).build());
            return name;
        }

        String stream() throws Exception {
            return stream("", b -> b);
        }

        /** Creates a durable pull consumer; explicit ack is the client's default. */
        ConsumerContext consumer(String stream, String name, UnaryOperator<ConsumerConfiguration.Builder> with)
            throws Exception {
            jsm.createConsumer(stream, with.apply(ConsumerConfiguration.builder().durable(name)).build());
            return nc.getConsumerContext(stream, name);
        }

        ConsumerContext consumer(String stream) throws Exception {
            return consumer(stream, "c", b -> b);
        }

        ConsumerInfo info(ConsumerContext consumer) throws Exception {
            return consumer.getConsumerInfo();
        }

        StreamState state(String stream) throws Exception {
            return jsm.getStreamInfo(stream).getStreamState();
        }

        PublishAck put(String subject, Object body) throws Exception {
            return js.publish(subject, bytes(body));
        }

        PublishAck put(String subject, Object body, PublishOptions.Builder options) throws Exception {
            return js.publish(subject, bytes(body), options.build());
        }

        /** Publishes the numbers 0 to count-1 synchronously. */
        void putMany(String subject, int count) throws Exception {
            for (int i = 0; i < count; i++) {
                put(subject, i);
            }
        }

        /** Publishes asynchronously; the acks must carry 1, 2, 3 ... in order. */
        void putAsync(String subject, int count, IntFunction<byte[]> body) throws Exception {
            ArrayDeque<CompletableFuture<PublishAck>> window = new ArrayDeque<>();
            long acked = 0;
            for (int i = 0; i < count || !window.isEmpty(); i++) {
                if (window.size() == PUBLISH_WINDOW || i >= count) {
                    acked++;
                    equal(window.removeFirst().get(TIMEOUT_MS, TimeUnit.MILLISECONDS).getSeqno(), acked, "sequence of an ack");
                }
                if (i < count) {
                    window.add(js.publishAsync(subject, body.apply(i)));
                }
            }
        }

        void close() {
            for (String name : copy(streams)) {
                try {
                    jsm.deleteStream(name);
                } catch (Exception gone) {
                    // The scenario may have deleted it, or the connection may be broken: nothing left to do.
                }
            }
            for (Connection conn : copy(conns)) {
                try {
                    conn.close();
                } catch (InterruptedException stop) {
                    Thread.currentThread().interrupt();
                }
            }
        }
    }

    /** Runs one scenario, again if the client has lost a message, and prints its line; returns ok, FAIL or skip. */
    static String runOne(String url, Scenario scenario) {
        for (int lost = 0;; lost++) {
            try {
                return tryOne(url, scenario, lost < LOST_MAX);
            } catch (Lost again) {
                System.err.println(scenario.id() + ": " + again.getMessage() + "; once more");
            }
        }
    }

    /** Runs it once, within its limit. */
    private static String tryOne(String url, Scenario scenario, boolean mayRepeat) {
        Ctx c = new Ctx(url, scenario.id());
        long began = System.nanoTime();
        FutureTask<Void> task = new FutureTask<>(() -> {
            c.open();
            scenario.body().run(c);
            return null;
        });
        Thread thread = new Thread(task, scenario.id());
        thread.setDaemon(true);
        thread.start();
        String verdict = "FAIL";
        String tail;
        try {
            task.get(scenario.limitS(), TimeUnit.SECONDS);
            verdict = "ok";
            tail = String.valueOf(elapsedMs(began));
        } catch (TimeoutException late) {
            thread.interrupt();
            tail = "timeout after " + scenario.limitS() + " s";
        } catch (ExecutionException err) {
            Throwable why = err.getCause();
            while (why instanceof ExecutionException inner) {
                why = inner.getCause();
            }
            if (why instanceof Lost lost && mayRepeat) {
                c.close();
                throw lost;
            }
            verdict = why instanceof Skip ? "skip" : "FAIL";
            tail = (why instanceof Skip || why instanceof Failed ? why.getMessage() : why.toString()).replace('\n', ' ');
        } catch (InterruptedException stop) {
            tail = "interrupted";
        }
        c.close();
        System.out.println(verdict + " " + scenario.id() + " " + tail);
        return verdict;
    }
}
