import io.nats.client.KeyValue;
import io.nats.client.KeyValueManagement;
import io.nats.client.api.KeyValueConfiguration;
import io.nats.client.api.KeyValueEntry;
import io.nats.client.api.KeyValueStatus;
import io.nats.client.api.KeyValueWatcher;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeSet;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.UnaryOperator;
import java.util.stream.Collectors;

/** K01 to K07: the key-value store. */
final class Kv {
    static final List<Harness.Scenario> SCENARIOS = List.of(
        new Harness.Scenario("K01", Kv::putGet),
        new Harness.Scenario("K02", Kv::createUpdate),
        new Harness.Scenario("K03", Kv::watch),
        new Harness.Scenario("K04", Kv::history),
        new Harness.Scenario("K05", Kv::keysAndPurge),
        new Harness.Scenario("K06", Kv::ttl),
        new Harness.Scenario("K07", Kv::status));

    private static final String END = "(end of initial values)";

    private Kv() {}

    private static KeyValue bucket(Harness.Ctx c, UnaryOperator<KeyValueConfiguration.Builder> with) throws Exception {
        c.owns("KV_" + c.id);
        c.nc.keyValueManagement().create(with.apply(KeyValueConfiguration.builder().name(c.id)).build());
        return c.nc.keyValue(c.id);
    }

    private static void putGet(Harness.Ctx c) throws Exception {
        KeyValue kv = bucket(c, b -> b.maxHistoryPerKey(3));
        Harness.equal(kv.put("a.b", "one"), 1L, "revision");
        Harness.equal(kv.put("a.b", "two"), 2L, "revision");
        KeyValueEntry entry = kv.get("a.b");
        Harness.equal(List.of(entry.getKey(), entry.getValueAsString(), entry.getRevision()), List.of("a.b", "two", 2L),
            "entry");
        Harness.equal(kv.get("a.b", 1).getValueAsString(), "one", "old revision");
        Harness.equal(kv.get("none"), null, "missing key");
    }

    private static void createUpdate(Harness.Ctx c) throws Exception {
        KeyValue kv = bucket(c, b -> b);
        Harness.equal(kv.create("k", Harness.bytes(1)), 1L, "create");
        Harness.expectCode(10071, () -> kv.create("k", Harness.bytes(2)));
        Harness.expectCode(10071, () -> kv.update("k", Harness.bytes(2), 9));
        Harness.equal(kv.update("k", Harness.bytes(2), 1), 2L, "update");
        kv.delete("k");
        Harness.equal(kv.get("k"), null, "deleted key");
        Harness.equal(kv.create("k", Harness.bytes(3)), 4L, "create after the delete");
        Harness.equal(kv.get("k").getValueAsString(), "3", "value");
    }

    private static String brief(KeyValueEntry e) {
        return e.getKey() + "=" + Harness.text(e.getValue()) + " " + e.getOperation();
    }

    /** Puts what a watch tells into a queue. */
    private static final class Queue extends LinkedBlockingQueue<String> implements KeyValueWatcher {
        @Override
        public void watch(KeyValueEntry entry) {
            add(brief(entry));
        }

        @Override
        public void endOfData() {
            add(END);
        }

        List<String> next(int count) throws InterruptedException {
            List<String> got = new ArrayList<>();
            for (int i = 0; i < count; i++) {
                String one = poll(Harness.TIMEOUT_MS, TimeUnit.MILLISECONDS);
                Harness.check(one != null, "no update within 5 s, after " + got);
                got.add(one);
            }
            return got;
        }
    }

    private static void watch(Harness.Ctx c) throws Exception {
        KeyValue kv = bucket(c, b -> b);
        for (String key : List.of("a.1", "a.2", "b")) {
            kv.put(key, key);
        }
        Queue all = new Queue();
        try (var watching = kv.watchAll(all)) {
            Harness.equal(all.next(4), List.of("a.1=a.1 PUT", "a.2=a.2 PUT", "b=b PUT", END), "initial values");
            kv.put("c", "new");
            kv.delete("b");
            Harness.equal(all.next(2), List.of("c=new PUT", "b= DELETE"), "updates");
        }
        Queue some = new Queue();
        try (var watching = kv.watch("a.*", some)) {
            Harness.equal(some.next(3), List.of("a.1=a.1 PUT", "a.2=a.2 PUT", END), "wildcard");
        }
    }

    private static List<String> historyOf(KeyValue kv, String key) throws Exception {
        return kv.history(key).stream().map(Kv::brief).collect(Collectors.toList());
    }

    private static void history(Harness.Ctx c) throws Exception {
        KeyValue kv = bucket(c, b -> b.maxHistoryPerKey(5));
        for (int i = 0; i < 7; i++) {
            kv.put("k", String.valueOf(i));
        }
        kv.delete("k");
        Harness.equal(historyOf(kv, "k"), List.of("k=3 PUT", "k=4 PUT", "k=5 PUT", "k=6 PUT", "k= DELETE"), "history");
    }

    private static void keysAndPurge(Harness.Ctx c) throws Exception {
        KeyValue kv = bucket(c, b -> b.maxHistoryPerKey(5));
        for (String key : List.of("a", "b", "c", "a")) {
            kv.put(key, "x");
        }
        Harness.equal(new TreeSet<>(kv.keys()), new TreeSet<>(List.of("a", "b", "c")), "keys");
        kv.delete("b");
        kv.purge("a");
        Harness.equal(kv.keys(), List.of("c"), "keys after delete and purge");
        Harness.equal(historyOf(kv, "a"), List.of("a= PURGE"), "history of the purged key");
        Harness.equal(kv.get("a"), null, "purged key");
    }

    private static void ttl(Harness.Ctx c) throws Exception {
        KeyValue kv = bucket(c, b -> b.ttl(Duration.ofSeconds(3)));
        kv.put("k", "x");
        Harness.equal(kv.get("k").getValueAsString(), "x", "value");
        Harness.until("the value expires", () -> kv.get("k") == null);
    }

    private static void status(Harness.Ctx c) throws Exception {
        KeyValueManagement management = c.nc.keyValueManagement();
        KeyValue kv = bucket(c, b -> b.maxHistoryPerKey(4));
        for (int i = 0; i < 3; i++) {
            kv.put("k" + i, "x");
        }
        KeyValueStatus status = kv.getStatus();
        Harness.equal(List.of(status.getBucketName(), status.getEntryCount(), status.getMaxHistoryPerKey()),
            List.of("K07", 3L, 4L), "status");
        Harness.check(management.getBucketNames().contains("K07"), "not in the names");
        management.delete("K07");
        Harness.expectCode(10059, () -> management.getStatus("K07"));
    }
}
