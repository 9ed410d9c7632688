//! The writing task of a connection: writes what direct writes left over, pings, and closes.

use crate::close_reason::CloseReason;
use crate::conn::{Connection, Transport};
use crate::outbox::Batch;
use crate::server::Server;
use crate::slice::Slice;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

/// Chunks handed to one vectored write.
const MAX_SLICES: usize = 64;
/// The first ping comes early, to measure the round trip.
const FIRST_PING: Duration = Duration::from_secs(2);
/// A node of the cluster that is silent for so long is asked whether it is there, again and again up to `ping_max`
/// times: its machine may be gone.
const NODE_PING: Duration = Duration::from_secs(2);
/// How often the time of a client that has to go one day is compared with the clock.
const EXPIRY_CHECK: Duration = Duration::from_secs(3600);
/// A closing connection gets so long to take what waits for it.
const CLOSING: Duration = Duration::from_secs(1);
/// A closing connection's peer gets so long to close its side: longer than the reader drops what comes.
const LAST_WORDS: Duration = Duration::from_millis(700);
/// How long to wait for another thread to finish its write to a closing connection.
const PEN_WAIT: Duration = Duration::from_millis(5);

/// Writes until the connection is closed. `socket` is what `output` writes to in the end;
/// `auth_timeout`: how soon the client must have connected.
pub(crate) async fn run<W: AsyncWrite + Unpin>(
    server: Arc<Server>,
    conn: Arc<Connection>,
    mut output: W,
    socket: Arc<TcpStream>,
    auth_timeout: Option<Duration>,
) {
    // Without authentication a CONNECT is optional: pings then tell whether the client is alive.
    let mut may_stay = auth_timeout.is_none();
    let first = auth_timeout.unwrap_or_else(|| ping_interval(&server, &conn));
    let mut timer = pin!(tokio::time::sleep(first));
    let mut expiry = None;
    let mut connected = false;
    while conn.is_open() {
        tokio::select! {
            biased;
            () = conn.outbox().woken() => {
                if let Err(reason) = drain(&server, &conn, &mut output).await {
                    lost(&server, &conn, reason);
                }
            }
            () = conn.connected.notified() => {
                expiry = expiry_timer(&conn);
                if conn.asks_service.load(Relaxed) {
                    // The reader bounds that by the same time; until then it hears nothing, no ping either.
                    timer.as_mut().reset(Instant::now() + 2 * first);
                } else if !connected {
                    connected = true;
                    may_stay = true;
                    timer.as_mut().reset(Instant::now() + first_ping(&server, &conn));
                }
            }
            // The clock may have been set, or the time be too long for one timer.
            () = over(&mut expiry) => expiry = expiry_timer(&conn),
            () = &mut timer => on_timer(&server, &conn, timer.as_mut(), may_stay),
        }
    }
    finish(&server, &conn, &mut output).await;
    // Monitoring remembers the connection for long; what it never took must not stay with it.
    conn.outbox().close(false);
    // The reader drops what still comes, so that our last words are not lost in a reset; it may be
    // waiting for a peer that never closes its side, though.
    if !conn.drops_pending() {
        let _ = tokio::time::timeout(LAST_WORDS, conn.reader_done.notified()).await;
    }
    end(&conn, &socket);
}

/// True if the peer learns of the end by a reset. A websocket has a frame that says why.
fn resets_writers(conn: &Connection) -> bool {
    let is_websocket = matches!(conn.transport, Transport::Websocket(_));
    !is_websocket && conn.close_reason().is_some_and(CloseReason::resets_writers)
}

/// Ends both directions. A peer whose bytes were thrown away and that may be writing more gets a reset
/// (as from nats-server, which closes with them unread) once nobody holds the socket any more.
fn end(conn: &Connection, socket: &TcpStream) {
    let socket = socket2::SockRef::from(socket);
    if resets_writers(conn) && conn.input_dropped.load(Relaxed) {
        let _ = socket.set_linger(Some(Duration::ZERO));
        // The direction towards the peer is left to the reset: an end before it would be read as an
        // orderly one.
        let _ = socket.shutdown(std::net::Shutdown::Read);
        return;
    }
    let _ = socket.shutdown(std::net::Shutdown::Both);
}

/// A timer towards the time at which the client has to go, if there is one; closes the connection
/// when that is over.
fn expiry_timer(conn: &Connection) -> Option<Pin<Box<Sleep>>> {
    let expires = conn.session().grant.as_ref()?.expires?;
    let rest = expires.duration_since(SystemTime::now()).unwrap_or_default();
    if rest.is_zero() {
        let text = Some("User Authentication Expired");
        conn.close(CloseReason::AuthenticationExpired, text);
        return None;
    }
    Some(Box::pin(tokio::time::sleep(rest.min(EXPIRY_CHECK))))
}

/// Ends with the timer; never without one.
async fn over(timer: &mut Option<Pin<Box<Sleep>>>) {
    match timer {
        Some(timer) => timer.as_mut().await,
        None => std::future::pending().await,
    }
}

fn lost(server: &Server, conn: &Connection, reason: CloseReason) {
    if reason == CloseReason::SlowConsumerWriteDeadline && conn.is_open() {
        server.count_slow_consumer(conn, reason);
    }
    conn.close(reason, None);
}

fn ping_interval(server: &Server, conn: &Connection) -> Duration {
    let options = server.options();
    let own = match conn.transport {
        Transport::Websocket(_) => options.websocket.as_ref().and_then(|ws| ws.ping_interval),
        Transport::Node => return NODE_PING.min(options.limits.ping_interval),
        Transport::Tcp | Transport::Leaf => None,
    };
    own.unwrap_or(options.limits.ping_interval)
}

fn first_ping(server: &Server, conn: &Connection) -> Duration {
    ping_interval(server, conn).min(FIRST_PING)
}

fn on_timer(server: &Server, conn: &Connection, timer: Pin<&mut Sleep>, may_stay: bool) {
    if !may_stay {
        conn.close(CloseReason::AuthenticationTimeout, Some("Authentication Timeout"));
        return;
    }
    let limits = &server.options().limits;
    let interval = ping_interval(server, conn);
    let now_ms = server.uptime_ms();
    let last_ms = conn.last_active_ms.load(Relaxed);
    let idle = Duration::from_millis(now_ms.saturating_sub(last_ms));
    let rtt_known = conn.rtt_ns.load(Relaxed) != 0;
    if (idle >= interval || !rtt_known) && !conn.ping(limits.ping_max) {
        server.count_stale(conn);
        conn.close(CloseReason::StaleConnection, Some("Stale Connection"));
        return;
    }
    timer.reset(Instant::now() + interval);
}

/// Writes all that waits.
async fn drain<W: AsyncWrite + Unpin>(
    server: &Server,
    conn: &Connection,
    output: &mut W,
) -> Result<(), CloseReason> {
    let deadline = server.options().limits.write_deadline;
    let Some(mut batch) = conn.outbox().take_pen() else {
        // A websocket may have something to say that is no protocol text.
        return flush(output, deadline).await;
    };
    let mut slice = Slice::default();
    loop {
        let mut written = 0;
        while !batch.is_empty() {
            let began = std::time::Instant::now();
            let write = write_some(output, &batch);
            match tokio::time::timeout(deadline, write).await {
                Ok(Ok(count)) => {
                    batch.advance(count);
                    conn.outbox().count_written(count);
                    written += count;
                }
                Ok(Err(_)) => return Err(CloseReason::WriteError),
                Err(_) => return Err(CloseReason::SlowConsumerWriteDeadline),
            }
            conn.outlet().after_write();
            // A peer that takes everything at once has much encrypted or compressed for it.
            slice.spend(began).await;
        }
        debug_assert!(written > 0);
        flush(output, deadline).await?;
        batch = conn.outbox().next_batch(0);
        if batch.is_empty() {
            return Ok(());
        }
    }
}

async fn flush<W: AsyncWrite + Unpin>(
    output: &mut W,
    deadline: Duration,
) -> Result<(), CloseReason> {
    match tokio::time::timeout(deadline, output.flush()).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(CloseReason::WriteError),
        Err(_) => Err(CloseReason::SlowConsumerWriteDeadline),
    }
}

async fn write_some<W: AsyncWrite + Unpin>(output: &mut W, batch: &Batch) -> io::Result<usize> {
    poll_fn(|cx| {
        let mut slices = [IoSlice::new(&[]); MAX_SLICES];
        let count = batch.slices(&mut slices);
        Pin::new(&mut *output).poll_write_vectored(cx, &slices[..count])
    })
    .await
    .and_then(|count| if count == 0 { Err(io::ErrorKind::WriteZero.into()) } else { Ok(count) })
}

/// Writes what a closing connection may still get, then ends its sending side.
async fn finish<W: AsyncWrite + Unpin>(server: &Server, conn: &Connection, output: &mut W) {
    let drops = conn.drops_pending();
    let rest = async {
        while !drops && conn.outbox().pending() > 0 {
            if drain(server, conn, output).await.is_err() {
                return;
            }
            if conn.outbox().pending() > 0 {
                tokio::time::sleep(PEN_WAIT).await;
            }
        }
    };
    let _ = tokio::time::timeout(CLOSING, rest).await;
    if !drops && !resets_writers(conn) {
        let _ = tokio::time::timeout(CLOSING, output.shutdown()).await;
    }
}
