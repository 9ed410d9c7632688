//! An etcd of a test: `ETCD`, else what `tests/etcd.sh` has unpacked. It listens on loopback only.
#![allow(dead_code)] // each test binary uses its part

use crate::signal::signal;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nuthatch_ports::free_port;
use std::fs::OpenOptions;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long it may take to start.
const READY: Duration = Duration::from_secs(60);

/// Certificates of a test, made with openssl.
pub struct Certificates {
    pub ca: PathBuf,
    pub cert: PathBuf,
    pub key: PathBuf,
}

pub struct EtcdServer {
    dir: PathBuf,
    pub port: u16,
    flags: Vec<String>,
    scheme: &'static str,
    child: Option<Child>,
}

fn program() -> PathBuf {
    let unpacked = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/peers/etcd");
    let path = std::env::var_os("ETCD").map_or(unpacked, PathBuf::from);
    assert!(
        path.exists(),
        "{} is absent: run tests/etcd.sh once, or name an etcd 3.4 or later with ETCD",
        path.display()
    );
    path
}

impl EtcdServer {
    /// Starts one that keeps what it has in `dir`.
    pub fn start(dir: &Path) -> Self {
        Self::start_with(dir, &[], None)
    }

    /// Starts one with further flags, and with TLS if certificates are given: it wants one of its clients then.
    pub fn start_with(dir: &Path, flags: &[&str], tls: Option<&Certificates>) -> Self {
        std::fs::create_dir_all(dir).expect("a directory");
        let mut flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        if let Some(Certificates { ca, cert, key }) = tls {
            let files = [("trusted-ca-file", ca), ("cert-file", cert), ("key-file", key)];
            flags.extend(files.map(|(flag, file)| format!("--{flag}={}", file.display())));
            flags.push("--client-cert-auth".to_owned());
        }
        let scheme = if tls.is_some() { "https" } else { "http" };
        let mut server = Self {
            dir: dir.to_path_buf(),
            port: free_port().expect("a port"),
            flags,
            scheme,
            child: None,
        };
        server.restart();
        server
    }

    /// Starts it again, on what it has in its directory.
    pub fn restart(&mut self) {
        assert!(self.child.is_none(), "it runs");
        let log = self.dir.with_extension("log");
        let ready = || {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            (said.matches("ready to serve client requests").count(), said)
        };
        let earlier = ready().0;
        let out = OpenOptions::new().create(true).append(true).open(&log).expect("a log");
        let peer_port = free_port().expect("a port");
        let (client, peer) = (self.url(), format!("http://127.0.0.1:{peer_port}"));
        let mut command = Command::new(program());
        command.arg("--data-dir").arg(self.dir.join("data")).args(["--name", "e"]);
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &format!("e={peer}")]).args(&self.flags);
        command.stdin(Stdio::null()).stdout(out.try_clone().expect("a handle")).stderr(out);
        self.child = Some(command.spawn().expect("etcd starts"));
        let deadline = Instant::now() + READY;
        loop {
            let (times, said) = ready();
            if times > earlier {
                return;
            }
            assert!(Instant::now() < deadline, "etcd does not start:\n{said}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn url(&self) -> String {
        format!("{}://127.0.0.1:{}", self.scheme, self.port)
    }

    /// Calls etcd's API as JSON; its answer. Without TLS and users only.
    pub fn post(&self, path: &str, body: &str) -> String {
        let deadline = Instant::now() + READY;
        loop {
            let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("connected");
            let request = format!(
                "POST /v3/{path} HTTP/1.1\r\nHost: e\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
            stream.write_all(request.as_bytes()).expect("sent");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).expect("answered");
            if answer.starts_with("HTTP/1.1 200") {
                return answer;
            }
            assert!(Instant::now() < deadline, "{path}: {answer}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Writes a key, whatever is there.
    pub fn put(&self, key: &str, value: &str) {
        self.post("kv/put", &format!("{{\"key\": {}, \"value\": {}}}", base64(key), base64(value)));
    }

    /// Has users from now on: `root`, and `node`, who may use the keys `p/`. The password of both is `secret`.
    pub fn want_users(&self) {
        self.post("auth/user/add", r#"{"name": "root", "password": "secret"}"#);
        self.post("auth/user/add", r#"{"name": "node", "password": "secret"}"#);
        self.post("auth/role/add", r#"{"name": "root"}"#);
        self.post("auth/role/add", r#"{"name": "ours"}"#);
        let range = format!("\"key\": {}, \"range_end\": {}", base64("p/"), base64("p0"));
        let right =
            format!("{{\"name\": \"ours\", \"perm\": {{\"permType\": \"READWRITE\", {range}}}}}");
        self.post("auth/role/grant", &right);
        self.post("auth/user/grant", r#"{"user": "root", "role": "root"}"#);
        self.post("auth/user/grant", r#"{"user": "node", "role": "ours"}"#);
        self.post("auth/enable", "{}");
    }

    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("it runs");
        child.kill().expect("kill");
        child.wait().expect("wait");
    }

    pub fn signal(&self, name: &str) {
        signal(self.child.as_ref().expect("it runs").id(), name);
    }

    /// Copies what it has on its disk, while it does not run.
    pub fn back_up(&self, to: &Path) {
        assert!(self.child.is_none(), "it runs");
        copy(&self.dir.join("data"), to);
    }

    /// Puts an earlier copy in the place of what it has, while it does not run.
    pub fn restore(&self, from: &Path) {
        assert!(self.child.is_none(), "it runs");
        std::fs::remove_dir_all(self.dir.join("data")).expect("removed");
        copy(from, &self.dir.join("data"));
    }
}

impl Drop for EtcdServer {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn base64(text: &str) -> String {
    format!("\"{}\"", STANDARD.encode(text))
}

fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp").arg("-r").arg(from).arg(to).status().expect("cp");
    assert!(status.success());
}

fn openssl(args: &[&str]) {
    let output = Command::new("openssl").args(args).output().expect("openssl is needed");
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Makes an authority, and a certificate for 127.0.0.1 and a user `name` that it has signed.
pub fn certificates(dir: &Path, name: &str) -> Certificates {
    std::fs::create_dir_all(dir).expect("a directory");
    let at = |file: &str| dir.join(file);
    let text = |file: &str| dir.join(file).display().to_string();
    let (ca, ca_key, key) = (text("ca.pem"), text("ca.key"), text("key.pem"));
    let new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
    // Of a name of its own: one that is known by its name and has another key fails otherwise.
    let issuer = format!("/CN=authority {}", dir.file_name().unwrap_or_default().display());
    let authority =
        ["req", "-x509", "-days", "2", "-subj", &issuer, "-keyout", &ca_key, "-out", &ca];
    openssl(&[&authority[..], &new_key[..]].concat());
    let (request, subject) = (text("cert.csr"), format!("/CN={name}"));
    openssl(
        &[&["req", "-subj", &subject, "-keyout", &key, "-out", &request][..], &new_key[..]]
            .concat(),
    );
    std::fs::write(
        at("ext"),
        "subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n",
    )
    .expect("written");
    openssl(&[
        "x509",
        "-req",
        "-days",
        "2",
        "-in",
        &request,
        "-CA",
        &ca,
        "-CAkey",
        &ca_key,
        "-CAcreateserial",
        "-extfile",
        &text("ext"),
        "-out",
        &text("cert.pem"),
    ]);
    Certificates { ca: at("ca.pem"), cert: at("cert.pem"), key: at("key.pem") }
}

/// Makes the public and the private key that tokens are signed with.
pub fn token_keys(dir: &Path) -> (PathBuf, PathBuf) {
    std::fs::create_dir_all(dir).expect("a directory");
    let (public, private) = (dir.join("public.pem"), dir.join("private.pem"));
    let text = |path: &Path| path.display().to_string();
    openssl(&[
        "genpkey",
        "-algorithm",
        "RSA",
        "-pkeyopt",
        "rsa_keygen_bits:2048",
        "-out",
        &text(&private),
    ]);
    openssl(&["rsa", "-in", &text(&private), "-pubout", "-out", &text(&public)]);
    (public, private)
}
