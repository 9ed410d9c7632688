import io.nats.client.JetStreamApiException;
import io.nats.client.ObjectStore;
import io.nats.client.ObjectStoreManagement;
import io.nats.client.api.ObjectInfo;
import io.nats.client.api.ObjectStoreConfiguration;
import io.nats.client.api.ObjectStoreStatus;
import io.nats.client.api.ObjectStoreWatcher;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.OutputStream;
import java.security.DigestOutputStream;
import java.security.MessageDigest;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;

/** O01 to O05: the object store. */
final class ObjectStores {
    static final List<Harness.Scenario> SCENARIOS = List.of(
        new Harness.Scenario("O01", ObjectStores::putGet),
        new Harness.Scenario("O02", 360, ObjectStores::fiftyMegabytes),
        new Harness.Scenario("O03", ObjectStores::overwrite),
        new Harness.Scenario("O04", ObjectStores::watch),
        new Harness.Scenario("O05", ObjectStores::status));

    private ObjectStores() {}

    private static ObjectStore store(Harness.Ctx c) throws Exception {
        c.owns("OBJ_" + c.id);
        c.nc.objectStoreManagement().create(ObjectStoreConfiguration.builder().name(c.id).build());
        return c.nc.objectStore(c.id);
    }

    private static String digest(byte[] data) throws Exception {
        byte[] sum = MessageDigest.getInstance("SHA-256").digest(data);
        return "SHA-256=" + Base64.getUrlEncoder().encodeToString(sum);
    }

    private static byte[] read(ObjectStore obj, String name) throws Exception {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        obj.get(name, out);
        return out.toByteArray();
    }

    private static void putGet(Harness.Ctx c) throws Exception {
        ObjectStore obj = store(c);
        byte[] data = Core.random(1, 300_000);
        ObjectInfo put = obj.put("an object", data);
        Harness.equal(List.of(put.getObjectName(), put.getSize(), put.getChunks()), List.of("an object", 300_000L, 3L), "put");
        ObjectInfo info = obj.getInfo("an object");
        Harness.equal(List.of(info.getSize(), info.getChunks(), info.getDigest()), List.of(300_000L, 3L, digest(data)),
            "info");
        Harness.check(Arrays.equals(read(obj, "an object"), data), "content differs");
        Harness.equal(obj.getList().stream().map(ObjectInfo::getObjectName).collect(Collectors.toList()),
            List.of("an object"), "list");
        obj.delete("an object");
        // The client has its own error for this: 90201, object not found.
        Harness.expectError("object not found", e -> String.valueOf(e.getMessage()).contains("not found"),
            () -> read(obj, "an object"));
    }

    private static void fiftyMegabytes(Harness.Ctx c) throws Exception {
        ObjectStore obj = store(c);
        byte[] data = Core.random(2, 50 * 1024 * 1024);
        ObjectInfo put = obj.put("big", new ByteArrayInputStream(data));
        Harness.equal(List.of(put.getSize(), put.getDigest()), List.of((long) data.length, digest(data)), "put");
        MessageDigest sum = MessageDigest.getInstance("SHA-256");
        ObjectInfo got = obj.get("big", new DigestOutputStream(OutputStream.nullOutputStream(), sum));
        Harness.equal(got.getSize(), (long) data.length, "size");
        String read = "SHA-256=" + Base64.getUrlEncoder().encodeToString(sum.digest());
        Harness.equal(read, digest(data), "SHA-256");
    }

    private static void overwrite(Harness.Ctx c) throws Exception {
        ObjectStore obj = store(c);
        obj.put("o", new byte[500_000]);
        obj.put("o", Harness.bytes("second"));
        Harness.equal(Harness.text(read(obj, "o")), "second", "content");
        Harness.until("chunks of the first object are purged", () -> c.state("OBJ_O03").getMsgCount() == 2);
    }

    /** Puts what a watch tells into a queue. */
    private static final class Queue extends LinkedBlockingQueue<String> implements ObjectStoreWatcher {
        @Override
        public void watch(ObjectInfo info) {
            add(info.getObjectName() + (info.isDeleted() ? " deleted" : ""));
        }

        @Override
        public void endOfData() {
            add("(end of initial values)");
        }
    }

    private static void watch(Harness.Ctx c) throws Exception {
        ObjectStore obj = store(c);
        Queue events = new Queue();
        try (var watching = obj.watch(events)) {
            Harness.equal(events.poll(Harness.TIMEOUT_MS, TimeUnit.MILLISECONDS), "(end of initial values)", "first event");
            obj.put("one", Harness.bytes(1));
            obj.put("two", Harness.bytes(2));
            obj.delete("one");
            for (String want : List.of("one", "two", "one deleted")) {
                Harness.equal(events.poll(Harness.TIMEOUT_MS, TimeUnit.MILLISECONDS), want, "event");
            }
        }
    }

    private static void status(Harness.Ctx c) throws Exception {
        ObjectStoreManagement management = c.nc.objectStoreManagement();
        ObjectStore obj = store(c);
        obj.put("o", new byte[1_000]);
        ObjectStoreStatus status = obj.getStatus();
        Harness.equal(status.getBucketName(), "O05", "bucket");
        Harness.check(status.getSize() > 1_000, "size " + status.getSize());
        management.delete("O05");
        Harness.expectError("error 10059", e -> e instanceof JetStreamApiException js && js.getApiErrorCode() == 10059,
            () -> management.getStatus("O05"));
    }
}
