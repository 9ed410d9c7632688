//! Contexts: `context add`, `ls`, `info`, `select`, `unselect`, `copy` and `rm`. The files are those of
//! the `nats` command.

use clap::{Args, Subcommand};
use nuthatch_client::connect::ConnectArgs;
use nuthatch_client::connect::context::{Context, Store};
use serde_json::json;

use crate::error::CliError;
use crate::session::{confirm, print};
use crate::show::{DetailView, Table};

/// Commands about contexts.
#[derive(Debug, Clone, Subcommand)]
pub enum ContextCommand {
    /// Create a context, or change one, from the connection options given with this command
    #[command(visible_alias = "save", alias = "create")]
    Add(AddArgs),
    /// List contexts; the selected one has a star
    #[command(visible_alias = "list", alias = "l")]
    Ls(LsArgs),
    /// Show a context (default: the selected one), without its secrets
    #[command(visible_alias = "show", alias = "view")]
    Info(NameArgs),
    /// Use a context whenever none is named
    #[command(visible_alias = "switch", alias = "set")]
    Select(NeededArgs),
    /// Use no context unless one is named
    Unselect,
    /// Create a context from another one
    #[command(visible_alias = "cp")]
    Copy(CopyArgs),
    /// Delete a context
    #[command(visible_alias = "remove")]
    Rm(RmArgs),
}

/// Options of `context add`.
#[derive(Debug, Clone, Args)]
pub struct AddArgs {
    /// Context name
    name: String,
    /// Description
    #[arg(long)]
    description: Option<String>,
    /// Select it
    #[arg(long)]
    select: bool,
}

/// Options of `context ls`.
#[derive(Debug, Clone, Args)]
pub struct LsArgs {
    /// Print names only
    #[arg(long, short)]
    names: bool,
}

/// The name of a context, or none for the selected one.
#[derive(Debug, Clone, Args)]
pub struct NameArgs {
    /// Context name
    name: Option<String>,
}

/// The name of a context.
#[derive(Debug, Clone, Args)]
pub struct NeededArgs {
    /// Context name
    name: String,
}

/// Options of `context copy`.
#[derive(Debug, Clone, Args)]
pub struct CopyArgs {
    /// Context that is copied
    source: String,
    #[command(flatten)]
    target: AddArgs,
}

/// Options of `context rm`.
#[derive(Debug, Clone, Args)]
pub struct RmArgs {
    /// Context name
    name: String,
    /// Do not ask
    #[arg(long, short)]
    force: bool,
}

/// Runs a command about contexts. `given` are the options as they were given, not filled up from
/// any context.
pub fn run(command: &ContextCommand, given: &ConnectArgs) -> Result<(), CliError> {
    let store = Store::open();
    match command {
        ContextCommand::Add(args) => {
            let known = store.names()?.contains(&args.name);
            let base = if known { store.load(&args.name)? } else { Context::default() };
            save(&store, args, base, given)
        }
        ContextCommand::Copy(args) => save(&store, &args.target, store.load(&args.source)?, given),
        ContextCommand::Ls(args) => ls(&store, args, given.json),
        ContextCommand::Info(args) => info(&store, args, given),
        ContextCommand::Select(args) => {
            store.select(&args.name)?;
            done(given, &args.name, format!("Context {} is selected\n", args.name))
        }
        ContextCommand::Unselect => {
            store.unselect()?;
            done(given, "", "No context is selected\n".into())
        }
        ContextCommand::Rm(args) => {
            confirm(&format!("Delete context {}?", args.name), args.force)?;
            store.remove(&args.name)?;
            done(given, &args.name, format!("Context {} was deleted\n", args.name))
        }
    }
}

fn done(given: &ConnectArgs, name: &str, text: String) -> Result<(), CliError> {
    print(given.json, &json!({ "context": name }), || text)
}

fn save(store: &Store, args: &AddArgs, base: Context, given: &ConnectArgs) -> Result<(), CliError> {
    let context = filled(base, args, given)?;
    let path = store.save(&args.name, &context)?;
    if args.select {
        store.select(&args.name)?;
    }
    let text = format!("Context {} was written to {}\n", args.name, path.display());
    done(given, &args.name, text)
}

/// The context with what was given put in.
fn filled(mut context: Context, args: &AddArgs, given: &ConnectArgs) -> Result<Context, CliError> {
    let path = |path: &Option<std::path::PathBuf>| -> Result<Option<String>, CliError> {
        let Some(path) = path else { return Ok(None) };
        // The context is used from any directory.
        let full = std::path::absolute(path)?;
        Ok(Some(full.to_string_lossy().into_owned()))
    };
    let url = (!given.server.is_empty()).then(|| given.server.clone());
    let fields = [
        (&mut context.description, args.description.clone()),
        (&mut context.url, url),
        (&mut context.user, given.user.clone()),
        (&mut context.password, given.password.clone()),
        (&mut context.token, given.token.clone()),
        (&mut context.creds, path(&given.creds)?),
        (&mut context.nkey, path(&given.nkey)?),
        (&mut context.cert, path(&given.tlscert)?),
        (&mut context.key, path(&given.tlskey)?),
        (&mut context.ca, path(&given.tlsca)?),
        (&mut context.jetstream_domain, given.js_domain.clone()),
        (&mut context.jetstream_api_prefix, given.js_api_prefix.clone()),
        (&mut context.inbox_prefix, given.inbox_prefix.clone()),
    ];
    for (field, value) in fields {
        if let Some(value) = value {
            *field = value;
        }
    }
    context.tls_first |= given.tlsfirst;
    if context.url.is_empty() {
        context.url = nuthatch_client::connect::DEFAULT_SERVER.into();
    }
    Ok(context)
}

fn ls(store: &Store, args: &LsArgs, json: bool) -> Result<(), CliError> {
    let names = store.names()?;
    let selected = store.selected()?;
    let mut rows = Vec::new();
    for name in &names {
        // A damaged file is listed too: it is what one may be looking for.
        let (context, why) = match store.load(name) {
            Ok(context) => (context, None),
            Err(err) => (Context::default(), Some(err.to_string())),
        };
        rows.push((name, selected.as_ref() == Some(name), context, why));
    }
    let values = rows.iter().map(|(name, selected, context, why)| {
        json!({ "name": name, "selected": selected, "description": context.description,
                "url": context.url, "error": why })
    });
    print(json, &values.collect(), || {
        if args.names {
            return names.iter().map(|name| format!("{name}\n")).collect();
        }
        if rows.is_empty() {
            return "No contexts; make one with `nuthatch context add`\n".into();
        }
        let mut table = Table::new(&["Name", "Description", "Server"]);
        for (name, selected, context, why) in &rows {
            let star = if *selected { "*" } else { "" };
            let about = why.clone().unwrap_or_else(|| context.description.clone());
            table.row(vec![format!("{name}{star}"), about, context.url.clone()]);
        }
        table.render()
    })
}

fn info(store: &Store, args: &NameArgs, given: &ConnectArgs) -> Result<(), CliError> {
    let name = match args.name.clone().or_else(|| given.context.clone()) {
        Some(name) => name,
        None => store.selected()?.ok_or_else(|| {
            CliError::NotFound("no context is selected; name one, or select one".into())
        })?,
    };
    let context = store.load(&name)?;
    let secret = |text: &str| if text.is_empty() { String::new() } else { "(set)".to_owned() };
    let (password, token) = (secret(&context.password), secret(&context.token));
    let lines = [
        ("Description", context.description.as_str()),
        ("Server", &context.url),
        ("User", &context.user),
        ("Password", &password),
        ("Token", &token),
        ("Credentials", &context.creds),
        ("Nkey", &context.nkey),
        ("Certificate", &context.cert),
        ("Key", &context.key),
        ("Authorities", &context.ca),
        ("JetStream domain", &context.jetstream_domain),
        ("JetStream API prefix", &context.jetstream_api_prefix),
        ("Inbox prefix", &context.inbox_prefix),
    ];
    let mut shown = serde_json::Map::new();
    let mut details = DetailView::default();
    details.heading(&format!("Context {name}"));
    for (title, value) in lines.iter().filter(|(_, value)| !value.is_empty()) {
        details.line(title, *value);
        shown.insert(title.to_lowercase().replace(' ', "_"), (*value).into());
    }
    details.line("File", store.path(&name)?.display().to_string());
    shown.insert("name".into(), name.as_str().into());
    print(given.json, &shown.into(), || details.render())
}
