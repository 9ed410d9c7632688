//! Who we are and whom we trust: TLS, client certificates, nkeys, contexts.

use std::fs;
use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use super::Server;

/// A pair that protects nothing.
const SEED: &str = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY";
const PUBLIC: &str = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4";

/// A fresh directory of this test.
fn directory(name: &str) -> std::path::PathBuf {
    let dir = std::env::temp_dir().join(format!("nuthatch-cli-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).unwrap();
    dir
}

/// Writes `ca.pem`, and `NAME.pem` with `NAME.key` for a server and a client.
fn certificates(dir: &Path) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    fs::write(dir.join("ca.pem"), ca.pem()).unwrap();
    for name in ["server", "client"] {
        let key = KeyPair::generate().unwrap();
        let names = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
        let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &ca).unwrap();
        fs::write(dir.join(format!("{name}.pem")), certificate.pem()).unwrap();
        fs::write(dir.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }
}

fn path(dir: &Path, name: &str) -> String {
    dir.join(name).display().to_string()
}

#[test]
fn tls_by_options_and_by_context() {
    let dir = directory("tls");
    certificates(&dir);
    let (ca, cert, key) =
        (path(&dir, "ca.pem"), path(&dir, "server.pem"), path(&dir, "server.key"));
    let server = Server::start(&["--tls", "--tlscert", &cert, "--tlskey", &key]);
    let (code, text) = server.fails(&["rtt"]);
    assert_eq!((code, text.contains("--tlsca")), (1, true), "{text}");
    server.ok(&["rtt", "--tlsca", &ca]);
    // A body larger than a TLS record, there and back.
    let big = "x".repeat(200_000);
    fs::write(dir.join("big"), &big).unwrap();
    server.ok(&["object", "add", "B", "--tlsca", &ca]);
    server.ok(&["object", "put", "B", &path(&dir, "big"), "--name", "big", "--tlsca", &ca]);
    assert_eq!(server.ok(&["object", "get", "B", "big", "-O", "-", "--tlsca", &ca]), big);

    let config = dir.join("config");
    let alone = |args: &[&str]| {
        let mut command = server.command(args);
        command.env_remove("NATS_URL").env("XDG_CONFIG_HOME", &config);
        command.output().unwrap()
    };
    let url = format!("tls://localhost:{}", server.port);
    let made = alone(&["context", "add", "safe", "-s", &url, "--tlsca", &ca, "--select"]);
    assert!(made.status.success(), "{made:?}");
    let used = alone(&["stream", "ls", "--all", "--names"]);
    assert_eq!(String::from_utf8_lossy(&used.stdout), "OBJ_B\n", "{used:?}");
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn client_certificates() {
    let dir = directory("mtls");
    certificates(&dir);
    let (ca, cert, key) =
        (path(&dir, "ca.pem"), path(&dir, "server.pem"), path(&dir, "server.key"));
    let flags = ["--tlsverify", "--tlscert", &cert, "--tlskey", &key, "--tlscacert", &ca];
    let server = Server::start(&flags);
    assert_eq!(server.fails(&["rtt", "--tlsca", &ca]).0, 1);
    let (cert, key) = (path(&dir, "client.pem"), path(&dir, "client.key"));
    server.ok(&["rtt", "--tlsca", &ca, "--tlscert", &cert, "--tlskey", &key]);
    let (_, text) = server.fails(&["rtt", "--tlsca", &ca, "--tlscert", &cert]);
    assert!(text.contains("--tlskey"), "{text}");
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn encryption_that_is_not_there() {
    let server = Server::start(&[]);
    let (code, text) = server.fails(&["-s", &format!("tls://127.0.0.1:{}", server.port), "rtt"]);
    assert_eq!((code, text.contains("does not offer TLS")), (1, true), "{text}");
}

#[test]
fn nkeys() {
    let dir = directory("nkey");
    let config = format!("authorization {{ users = [ {{ nkey: {PUBLIC} }} ] }}");
    fs::write(dir.join("server.conf"), config).unwrap();
    fs::write(dir.join("seed"), format!("{SEED}\n")).unwrap();
    fs::write(dir.join("wrong"), format!("{}\n", SEED.replace("SUACS", "SUACT"))).unwrap();
    let server = Server::start(&["-c", &path(&dir, "server.conf")]);
    let (code, text) = server.fails(&["rtt"]);
    assert_eq!((code, text.contains("--nkey")), (1, true), "{text}");
    server.ok(&["rtt", "--nkey", &path(&dir, "seed")]);
    let (code, text) = server.fails(&["rtt", "--nkey", &path(&dir, "wrong")]);
    assert_eq!((code, text.contains("nkey seed")), (2, true), "{text}");
    let by_environment = server.command(&["rtt"]).env("NATS_NKEY", dir.join("seed")).status();
    assert!(by_environment.unwrap().success());
    fs::remove_dir_all(dir).unwrap();
}
