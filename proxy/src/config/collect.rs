//! Reads one table and goes on after every mistake: the key at fault is told,
//! taken out, and the rest is read again.

use std::collections::HashMap;

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::{Segment, Track};

use super::Problem;

/// More mistakes than this in one table are not looked for.
const MOST: usize = 200;

/// Collects problems over all tables.
#[derive(Debug, Default)]
pub(crate) struct Collector {
    pub(crate) problems: Vec<Problem>,
}

impl Collector {
    pub(crate) fn add(&mut self, path: impl Into<String>, text: impl Into<String>) {
        self.problems.push(Problem::new(path, text));
    }

    /// Reads the table at `path`; `None` if nothing can be made of it.
    pub(crate) fn table<T: DeserializeOwned>(&mut self, path: &str, mut value: Value) -> Option<T> {
        let mut gaps = Gaps::default();
        for _ in 0..MOST {
            let mut track = Track::new();
            let mut unknown = Vec::new();
            let tracked = serde_path_to_error::Deserializer::new(value.clone(), &mut track);
            let read = serde_ignored::deserialize(tracked, |key| unknown.push(spelled(&key)));
            let error: serde_json::Error = match read {
                Ok(table) => {
                    let whole = unknown.into_iter().map(|steps| gaps.name(path, &steps));
                    self.problems.extend(whole.map(|path| Problem::new(path, "is no known key")));
                    return Some(table);
                }
                Err(error) => error,
            };
            let steps: Vec<Step> = track.path().iter().filter_map(Step::of).collect();
            self.add(gaps.name(path, &steps), plain(&error.to_string()));
            if !gaps.take_out(&mut value, &steps) {
                return None;
            }
        }
        self.add(path, "has too many mistakes to list");
        None
    }
}

/// The reader's words without its programmer's: what is expected, and how it is
/// written.
fn plain(words: &str) -> String {
    let Some((found, expected)) = words.rsplit_once("expected ") else { return words.to_owned() };
    let expected = match expected {
        "a duration" => "a duration such as 30s or 2m",
        "parsable string" => "a size such as 512MiB or 50GiB",
        "path string" => "a path",
        "struct UpstreamConfig" => "a table such as `{host: github.com}`",
        table if table.starts_with("struct ") => "a table of keys",
        other => other,
    };
    format!("{found}expected {expected}")
}

/// One step into a table.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Step {
    Key(String),
    At(usize),
}

impl Step {
    fn of(segment: &Segment) -> Option<Self> {
        match segment {
            Segment::Map { key } => Some(Self::Key(key.clone())),
            Segment::Seq { index } => Some(Self::At(*index)),
            Segment::Enum { .. } | Segment::Unknown => None,
        }
    }
}

fn spelled(path: &serde_ignored::Path<'_>) -> Vec<Step> {
    use serde_ignored::Path;
    let (parent, step) = match path {
        Path::Root => return Vec::new(),
        Path::Seq { parent, index } => (parent, Some(Step::At(*index))),
        Path::Map { parent, key } => (parent, Some(Step::Key(key.clone()))),
        Path::Some { parent } | Path::NewtypeStruct { parent } | Path::NewtypeVariant { parent } => {
            (parent, None)
        }
    };
    let mut steps = spelled(parent);
    steps.extend(step);
    steps
}

/// Which elements were taken out of which list, so that the others are still
/// called by the number that the file gives them.
#[derive(Debug, Default)]
struct Gaps(HashMap<Vec<Step>, Vec<usize>>);

impl Gaps {
    /// The path in the file's own numbers.
    fn name(&self, table: &str, steps: &[Step]) -> String {
        let mut name = table.to_owned();
        for (at, step) in steps.iter().enumerate() {
            match step {
                Step::Key(key) if name.is_empty() => name.push_str(key),
                Step::Key(key) => name = format!("{name}.{key}"),
                Step::At(index) => name = format!("{name}[{}]", self.original(&steps[..at], *index)),
            }
        }
        name
    }

    fn original(&self, list: &[Step], index: usize) -> usize {
        let mut original = index;
        for gone in self.0.get(list).into_iter().flatten() {
            if *gone <= original {
                original += 1;
            }
        }
        original
    }

    /// Removes what `steps` lead to; false if that is the table itself.
    fn take_out(&mut self, value: &mut Value, steps: &[Step]) -> bool {
        let Some((last, way)) = steps.split_last() else { return false };
        let parent = way.iter().try_fold(value, |value, step| match step {
            Step::Key(key) => value.get_mut(key),
            Step::At(index) => value.get_mut(index),
        });
        match (parent, last) {
            (Some(Value::Object(table)), Step::Key(key)) => table.remove(key).is_some(),
            (Some(Value::Array(elements)), Step::At(index)) if *index < elements.len() => {
                elements.remove(*index);
                let original = self.original(way, *index);
                let gone = self.0.entry(way.to_vec()).or_default();
                gone.push(original);
                gone.sort_unstable();
                true
            }
            _ => false,
        }
    }
}
