import io.nats.client.Connection;
import io.nats.client.Message;
import io.nats.client.Nats;
import io.nats.client.Options;
import java.io.FileInputStream;
import java.nio.charset.StandardCharsets;
import java.security.KeyStore;
import java.time.Duration;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/** jnats over TLS: before and after INFO, and as the user that its certificate names. */
public final class Tls {
    private static final Duration TIMEOUT = Duration.ofSeconds(60);
    private static final char[] PASSWORD = "changeit".toCharArray();

    private static KeyStore store(String file) throws Exception {
        KeyStore store = KeyStore.getInstance("PKCS12");
        try (FileInputStream in = new FileInputStream(file)) {
            store.load(in, PASSWORD);
        }
        return store;
    }

    private static SSLContext context(String certs) throws Exception {
        KeyManagerFactory keys = KeyManagerFactory.getInstance("PKIX");
        keys.init(store(certs + "/ada.p12"), PASSWORD);
        TrustManagerFactory trust = TrustManagerFactory.getInstance("PKIX");
        trust.init(store(certs + "/ca.p12"));
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(keys.getKeyManagers(), trust.getTrustManagers(), null);
        return context;
    }

    public static void main(String[] args) throws Exception {
        String url = args[0], certs = args[1], want = args[2], when = args[3];
        Options.Builder options =
            new Options.Builder().server(url).sslContext(context(certs)).connectionTimeout(TIMEOUT);
        if (when.equals("first")) {
            options.tlsFirst();
        }
        try (Connection nc = Nats.connect(options.build())) {
            Message reply = nc.request("$SYS.REQ.USER.INFO", null, TIMEOUT);
            String info = new String(reply.getData(), StandardCharsets.UTF_8);
            if (!info.contains("\"user\":\"" + want + "\"")) {
                throw new IllegalStateException(info);
            }
        }
        System.out.println("ok jnats " + when + " as " + want);
    }
}
