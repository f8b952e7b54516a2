//! Types of metrics, and the samples of one scrape.

use std::collections::HashMap;
use std::time::Duration;

use millrace_primitives::HistogramSnapshot;
use prometheus::proto;

/// The type of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows; its name ends in `_total`.
    Counter,
    /// Rises and falls.
    Gauge,
    /// Durations by bucket; its name ends in `_seconds`.
    Histogram,
}

/// A metric's declaration; all of them are in [`super::catalogue`].
#[derive(Debug)]
pub struct Family {
    /// The name, with its unit.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// Its unit: `seconds`, `bytes`, or the counted things.
    pub unit: &'static str,
    /// Its meaning, in one sentence.
    pub help: &'static str,
    /// Its use.
    pub purpose: &'static str,
    /// Its labels, in the order of their values.
    pub labels: &'static [&'static Label],
    /// The kind of service that has served traffic and lacks it, if there is one.
    pub absent: Option<&'static str>,
}

/// A label of metrics; all of them are in [`super::catalogue::labels`].
#[derive(Debug)]
pub struct Label {
    /// The name.
    pub name: &'static str,
    /// The meaning of its values, in one sentence.
    pub meaning: &'static str,
    /// All possible values; empty if they come from the configuration, the system or the clients.
    pub values: &'static [&'static str],
}

impl Label {
    /// Whether this is a valid value.
    #[must_use]
    pub fn takes(&self, value: &str) -> bool {
        self.values.is_empty() || self.values.contains(&value)
    }
}

/// The samples of one scrape, filled by the sources.
///
/// Samples of the same family and label values are added up, so that each core's part can be added
/// separately if the family has no label for the core.
#[derive(Debug, Default)]
pub struct Families {
    samples: HashMap<&'static str, (&'static Family, HashMap<Vec<String>, Sample>)>,
}

#[derive(Debug)]
enum Sample {
    Number(f64),
    Histogram(Box<HistogramSnapshot>),
}

impl Families {
    /// Adds a count or level. `labels` are the values of the family's labels, in its order.
    pub fn number(&mut self, family: &'static Family, labels: &[&str], value: u64) {
        debug_assert_ne!(family.kind, Kind::Histogram, "{}", family.name);
        self.add_number(family, labels, value as f64);
    }

    /// Adds a time, for a family whose name ends in `_seconds` or `_seconds_total`.
    pub fn seconds(&mut self, family: &'static Family, labels: &[&str], value: Duration) {
        debug_assert!(family.name.contains("_seconds"), "{}", family.name);
        self.add_number(family, labels, value.as_secs_f64());
    }

    /// Adds the counts of a histogram.
    pub fn histogram(
        &mut self,
        family: &'static Family,
        labels: &[&str],
        value: &HistogramSnapshot,
    ) {
        match self.sample(family, labels, || Sample::Histogram(Box::default())) {
            Some(Sample::Histogram(sum)) => sum.merge(value),
            _ => debug_assert!(false, "{} is no histogram", family.name),
        }
    }

    fn add_number(&mut self, family: &'static Family, labels: &[&str], value: f64) {
        match self.sample(family, labels, || Sample::Number(0.0)) {
            Some(Sample::Number(sum)) => *sum += value,
            _ => debug_assert!(false, "{} is no number", family.name),
        }
    }

    /// The sum for these label values; `None`, and a panic in debug builds, if the call does not
    /// match the declaration. The scrape then continues without the sample.
    fn sample(
        &mut self,
        family: &'static Family,
        labels: &[&str],
        zero: impl FnOnce() -> Sample,
    ) -> Option<&mut Sample> {
        if labels.len() != family.labels.len() {
            debug_assert!(
                false,
                "{} has labels {:?}, not {labels:?}",
                family.name, family.labels
            );
            return None;
        }
        for (label, value) in family.labels.iter().zip(labels) {
            debug_assert!(
                label.takes(value),
                "{}: {} {value}",
                family.name,
                label.name
            );
        }
        let (_, samples) = self
            .samples
            .entry(family.name)
            .or_insert_with(|| (family, HashMap::new()));
        let labels = labels.iter().map(|&value| value.to_owned()).collect();
        Some(samples.entry(labels).or_insert_with(zero))
    }

    /// The samples in the form of the exposition library.
    pub(super) fn into_proto(self) -> Vec<proto::MetricFamily> {
        let convert = |(family, samples): (&'static Family, HashMap<Vec<String>, Sample>)| {
            let mut out = proto::MetricFamily::default();
            out.set_name(family.name.to_owned());
            out.set_help(family.help.to_owned());
            out.set_field_type(match family.kind {
                Kind::Counter => proto::MetricType::COUNTER,
                Kind::Gauge => proto::MetricType::GAUGE,
                Kind::Histogram => proto::MetricType::HISTOGRAM,
            });
            let metrics = samples
                .into_iter()
                .map(|(labels, sample)| metric(family, labels, &sample));
            out.set_metric(metrics.collect());
            out
        };
        self.samples.into_values().map(convert).collect()
    }
}

fn metric(family: &Family, labels: Vec<String>, sample: &Sample) -> proto::Metric {
    let pairs = family.labels.iter().zip(labels).map(|(label, value)| {
        let mut pair = proto::LabelPair::default();
        pair.set_name(label.name.to_owned());
        pair.set_value(value);
        pair
    });
    let mut metric = proto::Metric::from_label(pairs.collect());
    match (family.kind, sample) {
        (Kind::Gauge, Sample::Number(value)) => {
            let mut gauge = proto::Gauge::default();
            gauge.set_value(*value);
            metric.set_gauge(gauge);
        }
        (_, Sample::Number(value)) => {
            let mut counter = proto::Counter::default();
            counter.set_value(*value);
            metric.set_counter(counter);
        }
        (_, Sample::Histogram(snapshot)) => {
            let mut histogram = proto::Histogram::default();
            let buckets = snapshot.cumulative().map(|(bound, count)| {
                let mut bucket = proto::Bucket::default();
                bucket.set_upper_bound(bound);
                bucket.set_cumulative_count(count);
                bucket
            });
            histogram.set_bucket(buckets.collect());
            histogram.set_sample_count(snapshot.count());
            histogram.set_sample_sum(snapshot.sum_seconds());
            metric.set_histogram(histogram);
        }
    }
    metric
}
