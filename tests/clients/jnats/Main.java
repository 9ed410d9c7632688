import io.nats.client.Connection;
import io.nats.client.Nats;
import io.nats.client.Options;
import io.nats.client.api.StreamConfiguration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Runs the shared scenario list (../SCENARIOS.md) with the unmodified jnats client. */
public final class Main {
    private Main() {}

    /** The value after a flag, or the default. */
    private static String flag(String[] args, String name, String otherwise) {
        for (int i = 0; i + 1 < args.length; i++) {
            if (args[i].equals(name)) {
                return args[i + 1];
            }
        }
        return otherwise;
    }

    /** Makes the stream that stays throughout the run; SCENARIOS.md says why. */
    private static void createKeeper(String url) {
        try (Connection nc = Nats.connect(Options.builder().server(url).connectionTimeout(Harness.TIMEOUT).build())) {
            nc.jetStreamManagement().addStream(StreamConfiguration.builder().name("KEEPER").subjects("keeper").build());
        } catch (Exception err) {
            // The scenarios that need JetStream will say the same.
            System.err.println("no stream KEEPER: " + err);
        }
    }

    public static void main(String[] args) throws Exception {
        String url = flag(args, "--url", "");
        List<String> only = List.of(flag(args, "--only", "").split(","));
        boolean all = only.equals(List.of(""));
        createKeeper(url);
        Map<String, Integer> tally = new HashMap<>(Map.of("ok", 0, "FAIL", 0, "skip", 0));
        List<List<Harness.Scenario>> parts = List.of(Core.SCENARIOS, Streams.SCENARIOS, Limits.SCENARIOS,
            Pull.SCENARIOS, Redelivery.SCENARIOS, Push.SCENARIOS, Kv.SCENARIOS, ObjectStores.SCENARIOS);
        for (List<Harness.Scenario> part : parts) {
            for (Harness.Scenario scenario : part) {
                if (all || only.contains(scenario.id())) {
                    tally.merge(Harness.runOne(url, scenario), 1, Integer::sum);
                }
            }
        }
        System.out.println(tally.get("ok") + " passed, " + tally.get("FAIL") + " failed, " + tally.get("skip") + " skipped");
        System.exit(tally.get("FAIL") == 0 && tally.get("ok") > 0 ? 0 : 1);
    }
}
