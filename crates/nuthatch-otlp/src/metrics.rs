//! Metrics as OTLP has them. Names stay those of `/metrics`; counters count from the start of the server.

use std::time::SystemTime;

use nuthatch_server::monitor::{Family, Number, Sample};
use nuthatch_server::server::Server;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint,
    ResourceMetrics, ScopeMetrics, Sum,
};
use prost::Message as _;

use crate::words::{resource, scope, text, unix_nanos};

/// From when to when it was counted, ns since 1970.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: u64,
    now: u64,
}

/// The body of a request.
pub fn request(server: &Server, families: &[Family], now: SystemTime) -> Vec<u8> {
    let span = Span { start: unix_nanos(server.since), now: unix_nanos(now) };
    let metrics = families.iter().filter(|family| !family.samples.is_empty());
    let metrics = metrics.map(|family| metric(family, span)).collect();
    let scope_metrics =
        vec![ScopeMetrics { scope: Some(scope()), metrics, ..ScopeMetrics::default() }];
    let of_server = ResourceMetrics {
        resource: Some(resource(server)),
        scope_metrics,
        ..ResourceMetrics::default()
    };
    ExportMetricsServiceRequest { resource_metrics: vec![of_server] }.encode_to_vec()
}

fn metric(family: &Family, span: Span) -> Metric {
    let cumulative = AggregationTemporality::Cumulative as i32;
    let is_histogram = matches!(family.samples[0].value, Number::Latency(_));
    let data = if is_histogram {
        let data_points = family.samples.iter().filter_map(|s| buckets(family, s, span)).collect();
        Data::Histogram(Histogram { data_points, aggregation_temporality: cumulative })
    } else {
        let data_points = family.samples.iter().filter_map(|s| point(family, s, span)).collect();
        match family.is_counter() {
            true => Data::Sum(Sum {
                data_points,
                aggregation_temporality: cumulative,
                is_monotonic: true,
            }),
            false => Data::Gauge(Gauge { data_points }),
        }
    };
    Metric {
        name: family.name().to_owned(),
        description: family.help().to_owned(),
        unit: unit(family.name()).to_owned(),
        data: Some(data),
        ..Metric::default()
    }
}

/// By the end of the name, which has it.
fn unit(name: &str) -> &'static str {
    match name.rsplit('_').next() {
        Some("seconds") => "s",
        Some("bytes") => "By",
        _ => "1",
    }
}

fn attributes(
    family: &Family,
    sample: &Sample,
) -> Vec<opentelemetry_proto::tonic::common::v1::KeyValue> {
    family.labels().iter().zip(&sample.labels).map(|(key, value)| text(key, value)).collect()
}

fn point(family: &Family, sample: &Sample, span: Span) -> Option<NumberDataPoint> {
    let value = match sample.value {
        Number::Whole(number) => Value::AsInt(i64::try_from(number).unwrap_or(i64::MAX)),
        Number::Real(number) => Value::AsDouble(number),
        Number::Latency(_) => return None,
    };
    Some(NumberDataPoint {
        attributes: attributes(family, sample),
        start_time_unix_nano: if family.is_counter() { span.start } else { 0 },
        time_unix_nano: span.now,
        value: Some(value),
        ..NumberDataPoint::default()
    })
}

fn buckets(family: &Family, sample: &Sample, span: Span) -> Option<HistogramDataPoint> {
    let Number::Latency(latency) = &sample.value else { return None };
    // Bucket `i` counts durations below `2^i` microseconds, the last one all others.
    let bounds = (0..latency.buckets.len() - 1).map(|i| (1_u64 << i) as f64 / 1e6);
    Some(HistogramDataPoint {
        attributes: attributes(family, sample),
        start_time_unix_nano: span.start,
        time_unix_nano: span.now,
        count: latency.count(),
        sum: Some(latency.total_nanos as f64 / 1e9),
        bucket_counts: latency.buckets.to_vec(),
        explicit_bounds: bounds.collect(),
        ..HistogramDataPoint::default()
    })
}
