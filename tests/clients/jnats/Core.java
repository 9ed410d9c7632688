import io.nats.client.Connection;
import io.nats.client.Dispatcher;
import io.nats.client.JetStreamStatusException;
import io.nats.client.Message;
import io.nats.client.Subscription;
import io.nats.client.api.ServerInfo;
import io.nats.client.impl.Headers;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.stream.Collectors;

/** C01 to C10: core publish/subscribe, request/reply, headers, drain, limits. */
final class Core {
    static final List<Harness.Scenario> SCENARIOS = List.of(
        new Harness.Scenario("C01", Core::wildcards),
        new Harness.Scenario("C02", Core::queueGroups),
        new Harness.Scenario("C03", Core::requestReply),
        new Harness.Scenario("C04", Core::noResponders),
        new Harness.Scenario("C05", Core::headers),
        new Harness.Scenario("C06", Core::drain),
        new Harness.Scenario("C07", Core::unsubscribeAfter),
        new Harness.Scenario("C08", Core::maxPayload),
        new Harness.Scenario("C09", Core::largeMessages),
        new Harness.Scenario("C10", Core::order));

    private Core() {}

    /** Subscribes and returns the list that fills up. */
    static List<Message> gather(Connection nc, String subject, String queue) throws Exception {
        List<Message> got = Harness.synced();
        Dispatcher dispatcher = nc.createDispatcher();
        if (queue == null) {
            dispatcher.subscribe(subject, got::add);
        } else {
            dispatcher.subscribe(subject, queue, got::add);
        }
        nc.flush(Harness.TIMEOUT);
        return got;
    }

    private static List<String> subjects(List<Message> msgs) {
        return Harness.copy(msgs).stream().map(Message::getSubject).collect(Collectors.toList());
    }

    private static void wildcards(Harness.Ctx c) throws Exception {
        List<Message> star = gather(c.nc, "c01.*", null);
        List<Message> mid = gather(c.nc, "c01.*.x", null);
        List<Message> rest = gather(c.nc, "c01.>", null);
        for (String subject : List.of("c01", "c01.a", "c01.b", "c01.a.x", "c01.a.y")) {
            c.nc.publish(subject, Harness.bytes("x"));
        }
        c.nc.flush(Harness.TIMEOUT);
        Thread.sleep(200);
        Harness.equal(subjects(star), List.of("c01.a", "c01.b"), "c01.*");
        Harness.equal(subjects(mid), List.of("c01.a.x"), "c01.*.x");
        Harness.equal(subjects(rest), List.of("c01.a", "c01.b", "c01.a.x", "c01.a.y"), "c01.>");
    }

    private static void queueGroups(Harness.Ctx c) throws Exception {
        List<List<Message>> members = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            members.add(gather(c.connect(), "c02.q", "workers"));
        }
        List<Message> plain = gather(c.nc, "c02.q", null);
        for (int i = 0; i < 300; i++) {
            c.nc.publish("c02.q", Harness.bytes(i));
        }
        Harness.until("300 messages",
            () -> members.stream().mapToInt(List::size).sum() >= 300 && plain.size() >= 300);
        Thread.sleep(100);
        List<Integer> all = new ArrayList<>();
        for (List<Message> member : members) {
            Harness.check(!member.isEmpty(), "a member got nothing");
            all.addAll(Harness.numbers(Harness.copy(member)));
        }
        Harness.equal(Harness.sortedCopy(all), Harness.span(0, 300), "group");
        Harness.equal(Harness.numbers(Harness.copy(plain)), Harness.span(0, 300), "plain subscriber");
    }

    private static void requestReply(Harness.Ctx c) throws Exception {
        Connection responder = c.connect();
        responder.createDispatcher(m -> responder.publish(m.getReplyTo(), Harness.bytes("re:" + Harness.text(m.getData()))))
            .subscribe("c03.*");
        responder.flush(Harness.TIMEOUT);
        for (int i = 0; i < 200; i++) {
            Message reply = c.nc.request("c03." + i, Harness.bytes(i), Harness.TIMEOUT);
            Harness.check(reply != null, "no reply to " + i);
            Harness.equal(Harness.text(reply.getData()), "re:" + i, "reply");
        }
    }

    private static void noResponders(Harness.Ctx c) {
        long began = System.nanoTime();
        Harness.expectError("no responders",
            e -> e.getCause() instanceof JetStreamStatusException status && status.getStatus().isNoResponders(),
            () -> c.nc.requestWithTimeout("c04.nobody", Harness.bytes("?"), Harness.TIMEOUT).get());
        Harness.check(Harness.elapsedMs(began) < Harness.TIMEOUT_MS / 2, "took as long as a request may");
    }

    private static void headers(Harness.Ctx c) throws Exception {
        // jnats takes only ASCII header values, so the UTF-8 value of the other runners is left out.
        Headers sent = new Headers().put("X-Mixed-Case", "a b: c;d").put("lower", "1").put("X-Two", "one", "two");
        List<Message> got = gather(c.nc, "c05.h", null);
        List<String> bodies = List.of("line\r\nline\0end", "");
        for (String body : bodies) {
            c.nc.publish("c05.h", sent, Harness.bytes(body));
        }
        Harness.until("two messages", () -> got.size() == 2);
        for (int i = 0; i < 2; i++) {
            Harness.equal(Harness.text(got.get(i).getData()), bodies.get(i), "payload");
            Harness.equal(got.get(i).getHeaders().toMap(), sent.toMap(), "headers");
        }
        c.nc.createDispatcher(m -> c.nc.publish(m.getReplyTo(),
            new Headers().put("Echo", m.getHeaders().getFirst("Ask")), new byte[0])).subscribe("c05.r");
        c.nc.flush(Harness.TIMEOUT);
        Message reply = c.nc.request("c05.r", new Headers().put("Ask", "v 1"), new byte[0], Harness.TIMEOUT);
        Harness.equal(reply.getHeaders().getFirst("Echo"), "v 1", "reply header");
    }

    private static void drain(Harness.Ctx c) throws Exception {
        Connection receiver = c.connect();
        List<String> got = Harness.synced();
        Dispatcher dispatcher = receiver.createDispatcher(m -> {
            Thread.sleep(2);
            got.add(Harness.text(m.getData()));
        });
        dispatcher.subscribe("c06.d");
        receiver.flush(Harness.TIMEOUT);
        for (int i = 0; i < 100; i++) {
            c.nc.publish("c06.d", Harness.bytes(i));
        }
        c.nc.flush(Harness.TIMEOUT);
        receiver.flush(Harness.TIMEOUT);
        Harness.check(dispatcher.drain(Harness.TIMEOUT).get(), "the drain of the subscription failed");
        for (int i = 0; i < 10; i++) {
            c.nc.publish("c06.d", Harness.bytes("late"));
        }
        c.nc.flush(Harness.TIMEOUT);
        Harness.check(receiver.drain(Harness.TIMEOUT).get(), "the drain of the connection failed");
        List<String> want = Harness.span(0, 100).stream().map(String::valueOf).collect(Collectors.toList());
        Harness.equal(Harness.copy(got), want, "drained messages");
        Harness.until("the connection closes", () -> receiver.getStatus() == Connection.Status.CLOSED);
    }

    private static void unsubscribeAfter(Harness.Ctx c) throws Exception {
        Subscription sub = c.nc.subscribe("c07.u");
        sub.unsubscribe(5);
        for (int i = 0; i < 10; i++) {
            c.nc.publish("c07.u", Harness.bytes(i));
        }
        c.nc.flush(Harness.TIMEOUT);
        List<Integer> got = new ArrayList<>();
        try {
            for (Message m = sub.nextMessage(500); m != null; m = sub.nextMessage(500)) {
                got.add(Harness.number(m));
            }
        } catch (IllegalStateException inactive) {
            // The client throws once the subscription has ended.
        }
        Harness.equal(got, Harness.span(0, 5), "messages");
    }

    private static void maxPayload(Harness.Ctx c) throws Exception {
        int limit = (int) c.nc.getMaxPayload();
        List<Message> got = gather(c.nc, "c08.p", null);
        Harness.expectError("max payload error", e -> e instanceof IllegalArgumentException, () -> {
            c.nc.publish("c08.p", new byte[limit + 1]);
            return null;
        });
        byte[] body = new byte[limit];
        Arrays.fill(body, (byte) 0xab);
        c.nc.publish("c08.p", body);
        Harness.until("the message of max_payload bytes", () -> got.size() == 1);
        Harness.check(Arrays.equals(got.get(0).getData(), body), "payload differs");
    }

    static byte[] random(long seed, int size) {
        byte[] data = new byte[size];
        new Random(seed).nextBytes(data);
        return data;
    }

    private static void largeMessages(Harness.Ctx c) throws Exception {
        Connection responder = c.connect();
        responder.createDispatcher(m -> responder.publish(m.getReplyTo(), m.getData())).subscribe("c09.echo");
        responder.flush(Harness.TIMEOUT);
        MessageDigest sha = MessageDigest.getInstance("SHA-256");
        for (int i = 0; i < 20; i++) {
            byte[] body = random(i, (int) Math.min(1_000_000, c.nc.getMaxPayload()));
            Message reply = c.nc.request("c09.echo", body, Harness.TIMEOUT);
            Harness.check(reply != null, "no reply to " + i);
            Harness.check(Arrays.equals(sha.digest(reply.getData()), sha.digest(body)), "SHA-256 differs");
        }
    }

    private static void order(Harness.Ctx c) throws Exception {
        int count = 20_000;
        List<Message> got = gather(c.connect(), "c10.o", null);
        for (int i = 0; i < count; i++) {
            c.nc.publish("c10.o", Harness.bytes(i));
        }
        c.nc.flush(Harness.TIMEOUT);
        Harness.until("all messages", () -> got.size() >= count);
        Harness.equal(Harness.numbers(Harness.copy(got)), Harness.span(0, count), "order");
        ServerInfo info = c.nc.getServerInfo();
        Harness.check(info.isHeadersSupported() && info.isJetStreamAvailable() && info.getMaxPayload() > 0,
            "INFO " + info);
    }
}
