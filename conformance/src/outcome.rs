//! What a scenario left behind, in a form in which two runs can be compared.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::client::git::{Git, Run};

/// Everything observable of one scenario; equal direct and through tidegate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    notes: BTreeMap<String, String>,
}

impl Outcome {
    /// Nothing noted yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Notes any fact.
    pub fn note(&mut self, label: &str, fact: impl Into<String>) {
        self.notes.insert(label.to_owned(), fact.into());
    }

    /// Notes how a client ended: its exit code and the class of its complaints. `base` is the
    /// door's own URL, which may not make two runs differ.
    pub fn run(&mut self, label: &str, run: &Run, base: &str) {
        let complaints: Vec<String> = run
            .stderr
            .lines()
            .filter(|line| ["fatal:", "error:", "warning:"].iter().any(|word| line.starts_with(word)))
            .map(|line| line.replace(base, "$X"))
            .collect();
        self.note(&format!("{label}: exit"), run.code.to_string());
        self.note(&format!("{label}: stderr"), complaints.join("\n"));
    }

    /// Notes a client's output, byte for byte.
    pub fn output(&mut self, label: &str, run: &Run) {
        self.note(&format!("{label}: output"), run.stdout.escape_ascii().to_string());
    }

    /// Notes a clone: refs, HEAD, reachable objects, shallow file, fsck.
    pub fn repository(&mut self, label: &str, folder: &Path) {
        let git = Git::new();
        let ask = |arguments: &[&str]| {
            let run = git.run(folder, arguments);
            let mut lines: Vec<String> =
                run.stdout.split(|byte| *byte == b'\n').map(|line| line.escape_ascii().to_string()).collect();
            lines.sort_unstable();
            format!("{}\n{}", run.code, lines.join("\n"))
        };
        self.note(&format!("{label}: refs"), ask(&["for-each-ref", "--format=%(objectname) %(refname)"]));
        self.note(&format!("{label}: head"), ask(&["symbolic-ref", "-q", "HEAD"]));
        self.note(&format!("{label}: tip"), ask(&["rev-parse", "-q", "--verify", "HEAD"]));
        let reachable = ["rev-list", "--objects", "--no-object-names", "--missing=allow-any", "--all"];
        self.note(&format!("{label}: objects"), ask(&reachable));
        self.note(&format!("{label}: shallow"), shallow(folder));
        let fsck = git.run(folder, &["fsck", "--strict", "--no-dangling", "--no-progress"]);
        let mut findings: Vec<&str> = fsck.stderr.lines().collect();
        findings.sort_unstable();
        self.note(&format!("{label}: fsck"), format!("{}\n{}", fsck.code, findings.join("\n")));
    }

    /// Notes every object that a partial clone holds, reachable or not, without fetching more.
    pub fn held(&mut self, label: &str, folder: &Path) {
        let arguments = ["cat-file", "--batch-all-objects", "--unordered", "--batch-check"];
        let run = Git::new().run(folder, &arguments);
        let text = run.text();
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        self.note(&format!("{label}: held"), lines.join("\n"));
    }

    /// Fails unless every noted client ended with 0: both doors failing alike proves nothing.
    pub fn all_succeeded(&self) {
        for (label, fact) in self.notes.iter().filter(|(label, _)| label.ends_with(": exit")) {
            assert!(fact == "0", "{label} {fact} straight from the upstream: {:#?}", self.notes);
        }
    }

    /// Fails with the differing notes only.
    pub fn must_equal(&self, other: &Self, names: (&str, &str)) {
        let mut differences = Vec::new();
        for label in self.notes.keys().chain(other.notes.keys()) {
            let (mine, theirs) = (self.notes.get(label), other.notes.get(label));
            if mine != theirs {
                let (mine, theirs) = (brief(mine), brief(theirs));
                differences.push(format!("{label}\n  {}: {mine}\n  {}: {theirs}", names.0, names.1));
            }
        }
        differences.dedup();
        assert!(differences.is_empty(), "not the same:\n{}", differences.join("\n"));
    }
}

fn brief(note: Option<&String>) -> String {
    let text = note.map_or("(nothing)", String::as_str);
    let shown: String = text.chars().take(1500).collect();
    if shown.len() < text.len() { format!("{shown}... ({} bytes)", text.len()) } else { shown }
}

/// The shallow file of a clone, sorted.
pub fn shallow(folder: &Path) -> String {
    let file = [folder.join(".git/shallow"), folder.join("shallow")];
    let text = file.iter().find_map(|file| fs::read_to_string(file).ok()).unwrap_or_default();
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines.join("\n")
}
