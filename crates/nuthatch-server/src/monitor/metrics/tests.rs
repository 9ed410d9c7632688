//! The page of a server without JetStream, and the document.

use super::*;
use crate::logging::Logger;
use crate::options::Options;

#[test]
fn the_page_names_only_what_the_table_has() {
    let server = Server::new(Options::default(), Logger::silent());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let Answer::Text(status, kind, text) =
        runtime.block_on(answer(&server, &Query::parse("consumers=3")))
    else {
        panic!("not a text");
    };
    assert_eq!((status, kind), (StatusCode::OK, accept::OPENMETRICS));
    assert!(text.ends_with("# EOF\n"), "{text}");
    assert!(text.contains("# TYPE nuthatch_connections gauge\nnuthatch_connections 0\n"), "{text}");
    assert!(text.contains("nuthatch_slow_consumers_total{reason=\"pending_bytes\"} 0\n"), "{text}");
    let known: Vec<&str> =
        table::SECTIONS.iter().flat_map(|(_, metrics)| metrics.iter().map(|m| m.name)).collect();
    for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let name = line.split(' ').next().unwrap();
        assert!(known.contains(&name), "{name}");
    }
    // A server that is alone has the names of a cluster's metrics, so that the document is true of every server.
    let (_, cluster) = table::SECTIONS.iter().find(|(name, _)| *name == "Cluster").unwrap();
    for metric in *cluster {
        assert!(text.contains(&format!("# TYPE {} ", metric.name)), "{} is not there", metric.name);
    }
}

#[test]
fn a_bad_number_is_an_error() {
    let server = Server::new(Options::default(), Logger::silent());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let answer = runtime.block_on(answer(&server, &Query::parse("streams=many")));
    assert!(matches!(answer, Answer::Text(StatusCode::BAD_REQUEST, _, _)));
}

/// The metrics as Markdown tables, by section.
fn metrics_reference() -> String {
    let mut text = String::new();
    for (section, metrics) in table::SECTIONS {
        text.push_str(&format!(
            "\n## {section}\n\n| metric | | labels | meaning |\n|---|---|---|---|\n"
        ));
        for Metric { name, kind, labels, help } in *metrics {
            let (kind, suffix) = match kind {
                Kind::Counter => ("counter", "_total"),
                Kind::Gauge => ("gauge", ""),
                Kind::Histogram => ("histogram", ""),
            };
            let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
            let labels = labels.join(", ");
            text.push_str(&format!("| `{name}{suffix}` | {kind} | {labels} | {help} |\n"));
        }
    }
    text
}

const MARK: &str =
    "<!-- Below this line: written by `UPDATE_DOCS=1 cargo test -p nuthatch-server doc` -->\n";

#[test]
fn the_document_holds_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (prose, tables) = text.split_once(MARK).expect("the mark is in the document");
    let expect = metrics_reference();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, format!("{prose}{MARK}{expect}")).unwrap();
    } else {
        assert_eq!(tables, expect, "run: UPDATE_DOCS=1 cargo test -p nuthatch-server doc");
    }
}
