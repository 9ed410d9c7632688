//! OCSP with openssl's authority, responder and client: this server and nats-server let in the same clients
//! with the same configuration, and each goes on with what the other has kept.
//!
//! nats-server is found as in the differential test: `NATS_SERVER`, else what `tests/peers.sh` has built;
//! `NUTHATCH_SKIP_PEERS` leaves it out where it is absent.

mod support;

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::{Server, TempDir};

/// Longest wait for something that must come.
const TIMEOUT: Duration = Duration::from_secs(60);

const AUTHORITY: &str = "
[ca]
default_ca=d
[d]
database=index.txt
new_certs_dir=.
serial=serial
certificate=ca.pem
private_key=ca.key
default_md=sha256
default_days=30
policy=p
[p]
commonName=supplied
[req]
distinguished_name=dn
[dn]
[authority]
basicConstraints=critical,CA:true
keyUsage=critical,keyCertSign,cRLSign
[client]
basicConstraints=CA:false
authorityInfoAccess=OCSP;URI:RESPONDER
[server]
basicConstraints=CA:false
subjectAltName=DNS:localhost,IP:127.0.0.1
authorityInfoAccess=OCSP;URI:RESPONDER
tlsfeature=status_request
[signer]
basicConstraints=CA:false
extendedKeyUsage=OCSPSigning
";

struct Authority {
    dir: TempDir,
    port: u16,
}

impl Authority {
    fn new() -> Self {
        let dir = TempDir::new("ocsp-authority");
        let port = nuthatch_ports::free_port().expect("a port");
        let text = AUTHORITY.replace("RESPONDER", &format!("http://127.0.0.1:{port}"));
        std::fs::write(dir.path().join("o.cnf"), text).expect("configuration");
        std::fs::write(dir.path().join("index.txt"), "").expect("index");
        std::fs::write(dir.path().join("serial"), "1000").expect("serial");
        let authority = Self { dir, port };
        authority.openssl(
            "req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -subj /CN=CA -days 30 \
             -config o.cnf -extensions authority",
        );
        for (name, kind) in
            [("server", "server"), ("good", "client"), ("bad", "client"), ("signer", "signer")]
        {
            authority.openssl(&format!(
                "req -newkey rsa:2048 -nodes -keyout {name}.key -out {name}.csr -subj /CN={name} -config o.cnf"
            ));
            authority.openssl(&format!(
                "ca -batch -config o.cnf -extensions {kind} -in {name}.csr -out {name}.pem -notext"
            ));
        }
        authority.openssl("ca -config o.cnf -revoke bad.pem");
        authority
    }

    fn openssl(&self, args: &str) {
        let done = self.command(args).output().expect("openssl is installed");
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "openssl {args}: {said}");
    }

    fn command(&self, args: &str) -> Command {
        let mut command = Command::new("openssl");
        command.current_dir(self.dir.path()).args(args.split_whitespace()).stdin(Stdio::null());
        command
    }

    fn responder(&self) -> Running {
        let args = format!(
            "ocsp -port {} -index index.txt -CA ca.pem -rsigner signer.pem -rkey signer.key -ndays 1",
            self.port
        );
        let mut command = self.command(&args);
        let running =
            Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it"));
        // Not by a connection that says nothing: openssl's responder waits for its request for ever.
        eventually("the responder answers", || {
            let url = format!("http://127.0.0.1:{}", self.port);
            let asked = format!("ocsp -issuer ca.pem -cert good.pem -CAfile ca.pem -url {url}");
            self.command(&asked).output().is_ok_and(|done| done.status.success())
        });
        running
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    fn configuration(&self, cache: &Path) -> String {
        format!(
            "ocsp {{ mode: must }}
             ocsp_cache {{ local_store: '{}', save_interval: 1 }}
             tls {{ cert_file: '{}', key_file: '{}', ca_file: '{}', verify: true, handshake_first: true,
                    timeout: 20, ocsp_peer {{ verify: true, ca_timeout: 5 }} }}",
            cache.display(),
            self.path("server.pem"),
            self.path("server.key"),
            self.path("ca.pem")
        )
    }

    /// Whether a client with this certificate gets in, and whether a good response is stapled.
    fn talk(&self, server: &Server, name: &str) -> (bool, bool) {
        let address = server.url.rsplit('/').next().expect("an address");
        let mut command = self.command(&format!(
            "s_client -connect {address} -cert {name}.pem -key {name}.key -CAfile ca.pem -status -ign_eof"
        ));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut client = Running(command.spawn().expect("openssl"));
        let mut input = client.0.stdin.take().expect("it has one");
        let _ = input.write_all(b"CONNECT {\"verbose\":false}\r\nPING\r\n");
        let mut output = client.0.stdout.take().expect("it has one");
        let (mut said, mut chunk) = (Vec::new(), [0; 4096]);
        let has = |said: &[u8], text: &str| String::from_utf8_lossy(said).contains(text);
        while !has(&said, "PONG") {
            match output.read(&mut chunk) {
                Ok(0) | Err(_) => break,
                Ok(count) => said.extend_from_slice(&chunk[..count]),
            }
        }
        (has(&said, "PONG"), has(&said, "Cert Status: good"))
    }
}

/// A process that ends with the value.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// `None`: it is absent, and that is intended.
fn reference() -> Option<PathBuf> {
    let built = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/peers/nats-server");
    let path = std::env::var_os("NATS_SERVER").map_or(built, PathBuf::from);
    let skips = std::env::var_os("NUTHATCH_SKIP_PEERS").is_some();
    assert!(path.is_file() || skips, "{} is absent: run tests/peers.sh once", path.display());
    path.is_file().then_some(path)
}

fn start(authority: &Authority, program: Option<&Path>, dir: &TempDir, cache: &Path) -> Server {
    let file = dir.path().join("server.conf");
    std::fs::write(&file, authority.configuration(cache)).expect("configuration");
    let flags = ["-c", file.to_str().expect("text")];
    Server::start_program(program, &dir.path().join("store"), &flags)
}

/// Who gets in, and whether the response is stapled.
fn ask_all(authority: &Authority, server: &Server) -> [(bool, bool); 2] {
    ["good", "bad"].map(|name| authority.talk(server, name))
}

#[test]
fn the_same_clients_get_in_as_at_a_nats_server() {
    let authority = Authority::new();
    let expected = [(true, true), (false, true)];
    let mut programs = vec![None];
    programs.extend(reference().map(Some));
    let dirs: Vec<TempDir> =
        (0..programs.len()).map(|number| TempDir::new(&format!("ocsp-{number}"))).collect();
    let cache = |number: usize| dirs[number].path().join("cache");
    let responder = authority.responder();
    for (number, program) in programs.iter().enumerate() {
        let server = start(&authority, program.as_deref(), &dirs[number], &cache(number));
        assert_eq!(ask_all(&authority, &server), expected, "{program:?}");
        eventually("the cache is written", || {
            let text = std::fs::read_to_string(cache(number).join("cache.json"));
            text.is_ok_and(|text| text.contains("CN=good") && text.contains("CN=bad"))
        });
    }
    // Nobody can be asked any more; each has what the other one has heard.
    drop(responder);
    for (number, program) in programs.iter().enumerate() {
        let others = cache(programs.len() - 1 - number);
        let server = start(&authority, program.as_deref(), &dirs[number], &others);
        assert_eq!(ask_all(&authority, &server), expected, "{program:?} with {others:?}");
    }
}
