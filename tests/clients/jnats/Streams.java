import io.nats.client.JetStreamManagement;
import io.nats.client.PublishOptions;
import io.nats.client.PurgeOptions;
import io.nats.client.api.AccountStatistics;
import io.nats.client.api.MessageInfo;
import io.nats.client.api.PublishAck;
import io.nats.client.api.StorageType;
import io.nats.client.api.StreamConfiguration;
import io.nats.client.api.StreamInfo;
import io.nats.client.api.StreamInfoOptions;
import io.nats.client.api.StreamState;
import io.nats.client.impl.Headers;
import java.time.Duration;
import java.time.ZonedDateTime;
import java.util.List;
import java.util.Map;

/** S01 to S11, S19, S20: stream life cycle, publishing, reading single messages, purge. */
final class Streams {
    static final List<Harness.Scenario> SCENARIOS = List.of(
        new Harness.Scenario("S01", Streams::accountInfo),
        new Harness.Scenario("S02", Streams::lifeCycle),
        new Harness.Scenario("S03", Streams::createErrors),
        new Harness.Scenario("S04", Streams::updateErrors),
        new Harness.Scenario("S05", Streams::publishSync),
        new Harness.Scenario("S06", Streams::publishAsync),
        new Harness.Scenario("S07", Streams::dedup),
        new Harness.Scenario("S08", Streams::expected),
        new Harness.Scenario("S09", Streams::getAndDelete),
        new Harness.Scenario("S10", Streams::directGet),
        new Harness.Scenario("S11", Streams::purge),
        new Harness.Scenario("S19", Streams::subjectsInState),
        new Harness.Scenario("S20", Streams::memoryStorage));

    private Streams() {}

    private static StreamConfiguration.Builder config(String name, String... subjects) {
        return StreamConfiguration.builder().name(name).subjects(subjects);
    }

    private static void accountInfo(Harness.Ctx c) throws Exception {
        AccountStatistics before = c.jsm.getAccountStatistics();
        String stream = c.stream();
        for (int i = 0; i < 3; i++) {
            c.js.publish("s01.a", new byte[100]);
        }
        c.consumer(stream);
        AccountStatistics after = c.jsm.getAccountStatistics();
        Harness.equal(after.getStreams(), before.getStreams() + 1, "streams");
        Harness.equal(after.getConsumers(), before.getConsumers() + 1, "consumers");
        Harness.check(after.getStorage() >= before.getStorage() + 300, "storage " + after.getStorage());
        Harness.check(after.getLimits() != null, "limits");
    }

    private static void lifeCycle(Harness.Ctx c) throws Exception {
        JetStreamManagement jsm = c.jsm;
        c.owns("S02");
        jsm.addStream(config("S02", "s02.a", "s02.b").description("first").build());
        StreamInfo info = jsm.getStreamInfo("S02");
        Harness.equal(info.getConfiguration().getDescription(), "first", "description");
        Harness.equal(info.getConfiguration().getSubjects(), List.of("s02.a", "s02.b"), "subjects");
        StreamState state = info.getStreamState();
        Harness.equal(List.of(state.getMsgCount(), state.getLastSequence()), List.of(0L, 0L), "empty state");
        StreamInfo updated = jsm.updateStream(StreamConfiguration.builder(info.getConfiguration())
            .description("second").addSubjects("s02.c").build());
        Harness.equal(updated.getConfiguration().getDescription(), "second", "description after update");
        Harness.equal(c.put("s02.c", "x").getSeqno(), 1L, "sequence on the new subject");
        Harness.equal(jsm.getStreamNames("s02.c"), List.of("S02"), "names by subject");
        Harness.check(jsm.getStreamNames().contains("S02"), "not in the names");
        Harness.check(jsm.getStreams().stream().anyMatch(s -> s.getConfiguration().getName().equals("S02")),
            "not in the list");
        Harness.check(jsm.deleteStream("S02"), "delete");
        Harness.expectCode(10059, () -> jsm.getStreamInfo("S02"));
        Harness.expectCode(10059, () -> jsm.deleteStream("S02"));
    }

    private static void createErrors(Harness.Ctx c) throws Exception {
        JetStreamManagement jsm = c.jsm;
        c.stream("", b -> b.maxMessages(10));
        jsm.addStream(config("S03", "s03.>").maxMessages(10).build());
        Harness.expectCode(10058, () -> jsm.addStream(config("S03", "s03.>").maxMessages(11).build()));
        c.owns("S03X");
        Harness.expectCode(10065, () -> jsm.addStream(config("S03X", "s03.a").build()));
        Harness.expectCode(10052,
            () -> jsm.addStream(config("S03X", "s03x").maxAge(Duration.ofSeconds(1)).duplicateWindow(2_000).build()));
    }

    private static void updateErrors(Harness.Ctx c) throws Exception {
        JetStreamManagement jsm = c.jsm;
        c.stream();
        c.stream("X", b -> b);
        Harness.expectCode(10059, () -> jsm.updateStream(config("S04MISSING", "s04m").build()));
        Harness.expectCode(10052,
            () -> jsm.updateStream(config("S04", "s04.>").storageType(StorageType.Memory).build()));
        Harness.expectCode(10065, () -> jsm.updateStream(config("S04", "s04.>", "s04x.a").build()));
    }

    private static void expectAck(PublishAck ack, String stream, long seq, boolean duplicate) {
        Harness.equal(List.of(ack.getStream(), ack.getSeqno(), ack.isDuplicate()), List.of(stream, seq, duplicate), "ack");
    }

    private static void publishSync(Harness.Ctx c) throws Exception {
        String stream = c.stream();
        for (int i = 1; i <= 20; i++) {
            expectAck(c.put("s05.a", i), stream, i, false);
        }
        expectState(c, stream, "state", 20, 1, 20);
        Harness.expectError("no responders", e -> String.valueOf(e.getMessage()).contains("503"),
            () -> c.put("s05none", "x"));
    }

    private static void expectState(Harness.Ctx c, String stream, String what, long... want) throws Exception {
        StreamState s = c.state(stream);
        List<Long> got = List.of(s.getMsgCount(), s.getFirstSequence(), s.getLastSequence());
        Harness.equal(got, List.of(want[0], want[1], want[2]), what);
    }

    private static void publishAsync(Harness.Ctx c) throws Exception {
        String stream = c.stream();
        c.putAsync("s06.a", 10_000, Harness::bytes);
        Harness.equal(c.state(stream).getMsgCount(), 10_000L, "messages");
    }

    private static PublishOptions.Builder options() {
        return PublishOptions.builder();
    }

    private static void dedup(Harness.Ctx c) throws Exception {
        String stream = c.stream("", b -> b.duplicateWindow(5_000));
        expectAck(c.put("s07.a", 1, options().messageId("one")), stream, 1, false);
        expectAck(c.put("s07.a", 2, options().messageId("one")), stream, 1, true);
        Thread.sleep(5_500);
        expectAck(c.put("s07.a", 3, options().messageId("one")), stream, 2, false);
        Harness.equal(c.state(stream).getMsgCount(), 2L, "messages");
    }

    private static void expected(Harness.Ctx c) throws Exception {
        String stream = c.stream();
        c.put("s08.a", 1, options().messageId("m1"));
        c.put("s08.b", 2, options().messageId("m2"));
        Harness.expectCode(10060, () -> c.put("s08.a", "x", options().expectedStream("OTHER")));
        Harness.expectCode(10071, () -> c.put("s08.a", "x", options().expectedLastSequence(1)));
        Harness.expectCode(10070, () -> c.put("s08.a", "x", options().expectedLastMsgId("m1")));
        Harness.expectCode(10071, () -> c.put("s08.a", "x", options().expectedLastSubjectSequence(2)));
        Harness.equal(c.state(stream).getMsgCount(), 2L, "messages after the refusals");
        expectAck(c.put("s08.a", 3, options().expectedStream(stream)), stream, 3, false);
        expectAck(c.put("s08.a", 4, options().expectedLastSequence(3)), stream, 4, false);
        expectAck(c.put("s08.a", 5, options().expectedLastSubjectSequence(4)), stream, 5, false);
        c.put("s08.a", 6, options().messageId("m6"));
        expectAck(c.put("s08.a", 7, options().expectedLastMsgId("m6")), stream, 7, false);
    }

    private static void expectMessage(MessageInfo msg, long seq, String subject, String body) {
        Harness.equal(List.of(msg.getSeq(), msg.getSubject(), Harness.text(msg.getData())), List.of(seq, subject, body),
            "message");
    }

    private static void getAndDelete(Harness.Ctx c) throws Exception {
        JetStreamManagement jsm = c.jsm;
        String stream = c.stream();
        for (int i = 1; i <= 3; i++) {
            c.js.publish("s09." + i % 2, new Headers().put("N", String.valueOf(i)), Harness.bytes("body " + i));
        }
        MessageInfo msg = jsm.getMessage(stream, 2);
        expectMessage(msg, 2, "s09.0", "body 2");
        Harness.equal(msg.getHeaders().getFirst("N"), "2", "header");
        Duration age = Duration.between(msg.getTime(), ZonedDateTime.now()).abs();
        Harness.check(age.toSeconds() < 60, "time " + msg.getTime());
        expectMessage(jsm.getLastMessage(stream, "s09.1"), 3, "s09.1", "body 3");
        Harness.check(jsm.deleteMessage(stream, 2), "delete");
        Harness.expectCode(10037, () -> jsm.getMessage(stream, 2));
        Harness.expectCode(10043, () -> jsm.deleteMessage(stream, 2));
        Harness.expectCode(10037, () -> jsm.getMessage(stream, 99));
        StreamState s = jsm.getStreamInfo(stream, StreamInfoOptions.deletedDetails()).getStreamState();
        Harness.equal(List.of(s.getMsgCount(), s.getDeletedCount(), s.getDeleted()), List.of(2L, 1L, List.of(2L)), "state");
    }

    /** The client takes the direct way by itself when the stream allows it. */
    private static void directGet(Harness.Ctx c) throws Exception {
        JetStreamManagement jsm = c.jsm;
        String stream = c.stream("", b -> b.allowDirect(true));
        for (int i = 1; i <= 4; i++) {
            c.put("s10." + i % 2, "body " + i);
        }
        expectMessage(jsm.getMessage(stream, 2), 2, "s10.0", "body 2");
        expectMessage(jsm.getLastMessage(stream, "s10.1"), 3, "s10.1", "body 3");
        expectMessage(jsm.getNextMessage(stream, 3, "s10.0"), 4, "s10.0", "body 4");
        // The client turns 404 into error 10037.
        Harness.expectCode(10037, () -> jsm.getMessage(stream, 99));
        Harness.expectCode(10037, () -> jsm.getLastMessage(stream, "s10.none"));
    }

    private static void purge(Harness.Ctx c) throws Exception {
        String stream = c.stream();
        for (int i = 1; i <= 10; i++) {
            c.put("s11." + i % 2, "x");
        }
        c.jsm.purgeStream(stream, PurgeOptions.subject("s11.0"));
        expectState(c, stream, "after the filter", 5, 1, 10);
        c.jsm.purgeStream(stream, PurgeOptions.builder().sequence(4).build());
        expectState(c, stream, "after the sequence", 3, 5, 10);
        c.jsm.purgeStream(stream, PurgeOptions.builder().keep(2).build());
        expectState(c, stream, "after keep", 2, 7, 10);
        Harness.equal(c.jsm.purgeStream(stream).getPurged(), 2L, "purged");
        expectState(c, stream, "after all", 0, 11, 10);
    }

    private static void subjectsInState(Harness.Ctx c) throws Exception {
        String stream = c.stream();
        for (String subject : List.of("s19.a.1", "s19.a.2", "s19.b")) {
            c.put(subject, "x");
        }
        StreamState s = c.jsm.getStreamInfo(stream, StreamInfoOptions.filterSubjects("s19.a.*")).getStreamState();
        Harness.equal(s.getSubjectMap(), Map.of("s19.a.1", 1L, "s19.a.2", 1L), "subjects");
        Harness.equal(s.getSubjectCount(), 3L, "num_subjects");
    }

    private static void memoryStorage(Harness.Ctx c) throws Exception {
        String stream = c.stream("", b -> b.storageType(StorageType.Memory));
        c.putMany("s20.a", 100);
        Harness.equal(Harness.numbers(Harness.fetch(c.consumer(stream), 100, Harness.TIMEOUT_MS)), Harness.span(0, 100), "messages");
        Harness.equal(c.jsm.getStreamInfo(stream).getConfiguration().getStorageType(), StorageType.Memory, "storage");
    }
}
