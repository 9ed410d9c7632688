//! Contents of a stream: `stream get`, `view`, `subjects`, `purge` and `rmm`.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::time::{Instant, SystemTime};

use clap::Args;
use nuthatch_client::OwnedMessage;
use nuthatch_client::connect::ConnectArgs;
use nuthatch_client::js::Answer;
use nuthatch_protocol::js::{
    GetAnswer, GetRequest, PurgeAnswer, PurgeRequest, StoredMessage, StreamInfoRequest,
};
use serde_json::json;

use crate::error::CliError;
use crate::follow::{Follower, From};
use crate::input::{check_name, check_subject, parse_since};
use crate::message::{self, Style};
use crate::session::{Session, confirm};
use crate::show::{self, Table, number};

/// Options of `stream get`.
#[derive(Debug, Clone, Args)]
pub struct GetArgs {
    /// Stream name
    stream: String,
    /// Sequence of the message
    #[arg(required_unless_present = "last_for", conflicts_with = "last_for")]
    id: Option<u64>,
    /// The last message of this subject
    #[arg(long, short = 'S', value_name = "SUBJECT")]
    last_for: Option<String>,
    /// Print the body only
    #[arg(long, short)]
    raw: bool,
}

/// Options of `stream view`.
#[derive(Debug, Clone, Args)]
pub struct ViewArgs {
    /// Stream name
    stream: String,
    /// How many messages to print
    #[arg(default_value_t = 10)]
    size: u64,
    /// Begin with this sequence
    #[arg(long, value_name = "SEQ", conflicts_with = "since")]
    id: Option<u64>,
    /// Begin with what was stored this long ago, such as 1h, or at an RFC 3339 time
    #[arg(long, value_name = "AGE")]
    since: Option<String>,
    /// Only messages of this subject
    #[arg(long)]
    subject: Option<String>,
    /// Print bodies only
    #[arg(long, short)]
    raw: bool,
}

/// Options of `stream subjects`.
#[derive(Debug, Clone, Args)]
pub struct SubjectsArgs {
    /// Stream name
    stream: String,
    /// Only subjects that match this
    #[arg(default_value = ">")]
    filter: String,
    /// Order
    #[arg(long, default_value = "messages", value_parser = ["name", "subjects", "messages", "count"])]
    sort: String,
    /// The other way round
    #[arg(long, short = 'R')]
    reverse: bool,
    /// Print names only
    #[arg(long, short)]
    names: bool,
}

/// Options of `stream purge`.
#[derive(Debug, Clone, Args)]
pub struct PurgeArgs {
    /// Stream name
    stream: String,
    /// Only messages of this subject
    #[arg(long)]
    subject: Option<String>,
    /// Only messages before this sequence
    #[arg(long, conflicts_with = "keep")]
    seq: Option<u64>,
    /// Keep this many of the newest messages
    #[arg(long)]
    keep: Option<u64>,
    /// Do not ask
    #[arg(long, short)]
    force: bool,
}

/// Options of `stream rmm`.
#[derive(Debug, Clone, Args)]
pub struct RmmArgs {
    /// Stream name
    stream: String,
    /// Sequence of the message
    id: u64,
    /// Do not ask
    #[arg(long, short)]
    force: bool,
}

/// A stored message.
pub fn stored(
    session: &mut Session,
    stream: &str,
    which: &GetRequest,
) -> Result<StoredMessage, CliError> {
    session
        .ask::<GetAnswer>(&format!("STREAM.MSG.GET.{stream}"), which)
        .map(|answer| answer.value.message)
        .map_err(CliError::js(format!("stream {stream}")))
}

/// Runs `stream get`.
pub fn get(args: &GetArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    check_name("stream", &args.stream)?;
    let which = match (&args.last_for, args.id) {
        (Some(subject), _) => {
            check_subject(subject, true)?;
            GetRequest { last_by_subj: subject.clone(), ..GetRequest::default() }
        }
        (None, Some(seq)) => GetRequest { seq, ..GetRequest::default() },
        (None, None) => return Err(CliError::Usage("name a sequence or --last-for".into())),
    };
    let mut session = Session::open(connect)?;
    let stored = stored(&mut session, &args.stream, &which)?;
    let message = OwnedMessage {
        subject: stored.subject,
        reply: None,
        headers: stored.headers,
        payload: stored.data,
    };
    if session.json {
        let mut json = message::to_json(&message);
        (json["seq"], json["time"]) = (stored.seq.into(), stored.time.to_string().into());
        return session.print(&json, String::new);
    }
    let lead = format!("Sequence {} at {} on ", stored.seq, show::moment(stored.time));
    message::print(&message, &lead, Style { raw: args.raw, ..Style::default() })
}

/// Runs `stream view`.
pub fn view(args: &ViewArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    check_name("stream", &args.stream)?;
    args.subject.as_deref().map_or(Ok(()), |subject| check_subject(subject, true))?;
    let from = match (&args.since, args.id) {
        (Some(text), _) => {
            From::Time(parse_since(text, SystemTime::now()).map_err(CliError::Usage)?)
        }
        (None, Some(seq)) => From::Sequence(seq),
        (None, None) => From::All,
    };
    let mut session = Session::open(connect)?;
    let filters: Vec<String> = args.subject.iter().cloned().collect();
    let mut follower = Follower::open(&mut session, &args.stream, &filters, from)?;
    let mut left = args.size.min(follower.pending_at_start);
    let style = Style { json: session.json, raw: args.raw, ..Style::default() };
    while left > 0 {
        let deadline = Instant::now() + session.timeout;
        let Some(delivered) = follower.next(&mut session, deadline)? else {
            follower.check_next(&mut session)?;
            break;
        };
        left -= 1;
        if style.json {
            let mut json = message::to_json(&delivered.message);
            json["seq"] = delivered.seq.into();
            json["time"] = crate::input::rfc3339(delivered.time).into();
            json.as_object_mut().map(|fields| fields.remove("reply"));
            writeln!(io::stdout(), "{json}")?;
            continue;
        }
        let lead = format!("[{}] {} ", delivered.seq, show::clock(delivered.time));
        let message = OwnedMessage { reply: None, ..delivered.message };
        message::print(&message, &lead, style)?;
    }
    follower.close(&mut session);
    Ok(())
}

/// All subjects of a stream that match, with their numbers of messages.
pub fn subject_counts(
    session: &mut Session,
    stream: &str,
    filter: &str,
) -> Result<BTreeMap<String, u64>, CliError> {
    let mut found = BTreeMap::new();
    loop {
        let request = StreamInfoRequest {
            subjects_filter: filter.to_owned(),
            offset: found.len() as u64,
            deleted_details: false,
        };
        let page = super::fetch(session, stream, &request)?;
        let total = number(&page.json["total"]);
        let before = found.len();
        found.extend(page.value.state.subjects.into_iter().flatten());
        if found.len() == before || found.len() as u64 >= total {
            return Ok(found);
        }
    }
}

/// Runs `stream subjects`.
pub fn subjects(args: &SubjectsArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    check_subject(&args.filter, true)?;
    let mut session = Session::open(connect)?;
    let counts = subject_counts(&mut session, &args.stream, &args.filter)?;
    let json = json!(counts);
    let mut rows: Vec<(String, u64)> = counts.into_iter().collect();
    if matches!(args.sort.as_str(), "messages" | "count") {
        rows.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    }
    if args.reverse {
        rows.reverse();
    }
    session.print(&json, || {
        if rows.is_empty() {
            return format!("No messages with a subject that matches {}\n", args.filter);
        }
        if args.names {
            return rows.iter().map(|(subject, _)| format!("{subject}\n")).collect();
        }
        let mut table = Table::new(&["Subject", "Messages"]);
        for (subject, count) in &rows {
            table.row(vec![subject.clone(), show::count(*count)]);
        }
        table.render()
    })
}

/// Runs `stream purge`.
pub fn purge(args: &PurgeArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    check_name("stream", &args.stream)?;
    let mut request = PurgeRequest::default();
    let mut what = vec!["messages".to_owned()];
    if let Some(subject) = &args.subject {
        check_subject(subject, true)?;
        request.filter.clone_from(subject);
        what.push(format!("on {subject}"));
    }
    if let Some(seq) = args.seq {
        request.seq = seq;
        what.push(format!("before sequence {seq}"));
    }
    if let Some(keep) = args.keep {
        request.keep = keep;
        what.push(format!("except the newest {keep}"));
    }
    let mut session = Session::open(connect)?;
    confirm(&format!("Remove all {} of stream {}?", what.join(" "), args.stream), args.force)?;
    let reply: Answer<PurgeAnswer> = session
        .ask(&format!("STREAM.PURGE.{}", args.stream), &request)
        .map_err(CliError::js(format!("could not purge stream {}", args.stream)))?;
    let purged = show::count(reply.purged);
    session.print(&reply.json, || format!("Messages removed: {purged}\n"))
}

/// Runs `stream rmm`.
pub fn rmm(args: &RmmArgs, connect: &ConnectArgs) -> Result<(), CliError> {
    check_name("stream", &args.stream)?;
    let (stream, seq) = (&args.stream, args.id);
    let mut session = Session::open(connect)?;
    confirm(&format!("Remove message {seq} of stream {stream}?"), args.force)?;
    let reply = session
        .api(&format!("STREAM.MSG.DELETE.{stream}"), &json!({ "seq": seq }))
        .map_err(CliError::js(format!("could not remove message {seq} of stream {stream}")))?;
    session.print(&reply, || format!("Message {seq} of stream {stream} was removed\n"))
}
