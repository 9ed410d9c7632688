//! Publishes traces of messages that are finished, off the way of all messages.

use crate::msg_trace::{Finished, Step, StreamQuestion};
use crate::server::Server;
use nuthatch_streams::Message;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What a stream says about a message is waited for so long; then the trace goes without it.
const VERDICT_WAIT: Duration = Duration::from_secs(2);

/// Publishes traces for as long as the server runs.
pub async fn serve(server: Arc<Server>) {
    let traces = server.accounts.traces.clone();
    let Some(mut finished) = traces.take() else { return };
    while let Some(mut trace) = finished.recv().await {
        ask_streams(&server, &mut trace).await;
        let event = event(&server, &trace);
        let body = serde_json::to_vec(&event).unwrap_or_default();
        let message = Message { subject: &trace.dest, reply: b"", headers: b"", body: &body };
        server.publish_and_store(trace.account, &message);
        traces.published(&trace);
        let lost = traces.take_lost();
        if lost > 0 {
            server.log.warn(format_args!(
                "{lost} message traces were dropped: more are asked for than can be published"
            ));
        }
        if server.stopping.load(Ordering::Relaxed) {
            return;
        }
    }
}

fn event(server: &Server, trace: &Finished) -> Value {
    let mut event = json!({
        "server": server.description(),
        "request": trace.request,
        "events": trace.steps,
    });
    if trace.hops > 0 {
        event["hops"] = json!(trace.hops);
    }
    if trace.omitted > 0 {
        event["omitted"] = json!(trace.omitted);
    }
    event
}

/// Completes what a trace says of streams.
async fn ask_streams(server: &Arc<Server>, trace: &mut Finished) {
    for step in &mut trace.steps {
        let Step::Stream { subject, nointerest, error, question, .. } = step else { continue };
        let Some(question) = question.take() else { continue };
        let mut outcome = question.outcome();
        let asked = server.jetstream().verdict(&question);
        if let Ok(Some(verdict)) = tokio::time::timeout(VERDICT_WAIT, asked).await {
            if let Some(refusal) = verdict.refusal {
                answer(server, &question, &refusal);
                outcome = StreamQuestion { answer: Some(refusal), ..*question }.outcome();
            }
            if outcome.is_checked {
                *subject = String::from_utf8_lossy(&verdict.subject).into_owned();
                *nointerest = verdict.no_interest;
            }
        }
        *error = outcome.error;
    }
}

/// The publisher of what is only traced hears why its message would be refused.
fn answer(server: &Arc<Server>, question: &StreamQuestion, refusal: &[u8]) {
    if !question.reply.is_empty() {
        let message = Message { subject: &question.reply, reply: b"", headers: b"", body: refusal };
        server.publish(question.account, &message);
    }
}
