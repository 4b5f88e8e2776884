//! A repository that changes at random: merges, tags of tags, force pushes,
//! branches that become folders, switched heads, pull requests, notes.

use std::fmt::Write as _;

use crate::dice::Dice;
use crate::repository::Repository;
use crate::upstream::Upstream;

/// Branch names, some of them folders of others.
const NAMES: [&str; 9] =
    ["main", "dev", "dev/a", "dev/a/b", "release/1", "release", "x-1", "topic/deep/er", "topic/deep"];

/// The repository, and what is known to be in it.
pub struct World {
    /// The repository itself.
    pub repository: Repository,
    dice: Dice,
    turn: usize,
    pulls: usize,
    history: Vec<String>,
}

impl World {
    /// An empty repository.
    pub fn new(upstream: &Upstream, name: &str, seed: u64) -> Self {
        let repository = upstream.repository(name);
        Self { repository, dice: Dice::of(seed), turn: 0, pulls: 0, history: Vec::new() }
    }

    /// What was done to it so far, for the one who has to repeat it.
    pub fn history(&self) -> String {
        self.history.join("\n")
    }

    /// Names of the refs that begin so.
    pub fn refs(&self, prefix: &str) -> Vec<String> {
        let listed = self.repository.git(&["for-each-ref", "--format=%(refname)", prefix]);
        listed.lines().map(str::to_owned).collect()
    }

    /// A commit that a ref reaches now, if there is any.
    pub fn any_commit(&mut self) -> Option<String> {
        let listed = self.repository.git(&["rev-list", "--branches", "--glob=refs/pull"]);
        let ids: Vec<&str> = listed.lines().collect();
        (!ids.is_empty()).then(|| (*self.dice.pick(&ids)).to_owned())
    }

    /// Changes one to four things.
    pub fn change(&mut self) {
        if !self.repository.exists("refs/heads/keep") {
            // Never without a branch again: an upstream that shows none is not believed at once.
            self.commits("keep", 3);
        }
        for _ in 0..=self.dice.below(4) {
            match self.dice.below(20) {
                0..=5 => self.push(),
                6 | 7 => self.merge(),
                8 | 9 => self.tag(),
                10 | 11 => self.pull_request(),
                12 => self.force(),
                13 | 14 => self.delete(),
                15 => self.head(),
                16 => self.note(),
                17 => self.move_tag(),
                18 => self.orphan(),
                _ => self.branch_off(),
            }
        }
    }

    fn say(&mut self, text: String) {
        self.history.push(text);
    }

    /// A name that can be a branch now: none of its folders is one, and it is no folder.
    fn branch(&mut self) -> String {
        let name = *self.dice.pick(&NAMES);
        let full = format!("refs/heads/{name}");
        let stands =
            |other: &str| other.starts_with(&format!("{full}/")) || full.starts_with(&format!("{other}/"));
        for other in self.refs("refs/heads").iter().filter(|other| stands(other)) {
            self.say(format!("delete {other} for {name}"));
            self.repository.delete(other);
        }
        name.to_owned()
    }

    fn commits(&mut self, branch: &str, count: usize) {
        let full = format!("refs/heads/{branch}");
        let mut from = self.repository.exists(&full).then(|| format!("{full}^0"));
        let mut stream = String::new();
        for _ in 0..count {
            self.turn += 1;
            let (turn, path) = (self.turn, self.path());
            let date = 1_700_000_000 + turn * 3600;
            let text = self.text();
            let _ = writeln!(stream, "commit {full}\ncommitter Ada <ada@example.test> {date} +0000");
            let _ = writeln!(stream, "data <<EOT\nturn {turn}\nEOT");
            if let Some(from) = from.take() {
                let _ = writeln!(stream, "from {from}");
            }
            let _ = writeln!(stream, "M 644 inline {path}\ndata {}\n{text}", text.len());
        }
        self.repository.import(&stream);
        self.say(format!("{count} commits on {branch}"));
    }

    fn path(&mut self) -> String {
        let folder = *self.dice.pick(&["", "apps/", "apps/one/", "apps/one/deep/", "lib/"]);
        format!("{folder}file-{}.txt", self.dice.below(6))
    }

    /// Texts come back now and then: the same blob at several places and times.
    fn text(&mut self) -> String {
        let kind = self.dice.below(12);
        let lines = [1, 20, 200][self.dice.below(3)];
        format!("kind {kind}\n{}", format!("line {kind} of {lines}\n").repeat(lines))
    }

    fn push(&mut self) {
        let branch = self.branch();
        let count = 1 + self.dice.below(4);
        self.commits(&branch, count);
    }

    fn merge(&mut self) {
        let heads = self.refs("refs/heads");
        let into = self.dice.pick(&heads).clone();
        let mut others: Vec<&str> = Vec::new();
        for _ in 0..=self.dice.below(3) {
            let other = self.dice.pick(&heads);
            if *other != into && !others.contains(&other.as_str()) {
                others.push(other);
            }
        }
        if others.is_empty() {
            return;
        }
        self.turn += 1;
        let date = 1_700_000_000 + self.turn * 3600;
        let mut stream = format!(
            "commit {into}\ncommitter Ada <ada@example.test> {date} +0000\ndata <<EOT\nmerge {date}\nEOT\nfrom {into}^0\n"
        );
        for other in &others {
            let _ = writeln!(stream, "merge {other}^0");
        }
        let _ = writeln!(stream, "M 644 inline merged.txt\ndata <<EOT\n{date}\nEOT");
        self.repository.import(&stream);
        self.history.push(format!("merge {others:?} into {into}"));
    }

    fn tag(&mut self) {
        let mut targets = self.refs("refs/heads");
        targets.extend(self.refs("refs/tags"));
        let target = self.dice.pick(&targets).clone();
        self.turn += 1;
        let name = format!("v{}", self.turn);
        let target = match self.dice.below(10) {
            0 => format!("{target}^{{}}"),
            _ => target,
        };
        let target = self.repository.resolve(&target);
        if self.dice.chance(30) {
            self.repository.set(&format!("refs/tags/{name}"), &target);
        } else {
            self.repository.annotate(&name, &target);
        }
        self.say(format!("tag {name} on {target}"));
        if self.dice.chance(10) {
            let blob = self.repository.write_object("blob", format!("only {name}\n").as_bytes());
            self.repository.annotate(&format!("blob-{name}"), &blob);
            self.say(format!("tag blob-{name}"));
        }
    }

    fn move_tag(&mut self) {
        let tags = self.refs("refs/tags");
        if !tags.is_empty() {
            let tag = self.dice.pick(&tags).clone();
            self.repository.set(&tag, "refs/heads/keep^{}");
            self.say(format!("move {tag} to keep"));
        }
    }

    fn pull_request(&mut self) {
        let number = if self.pulls > 0 && self.dice.chance(40) {
            1 + self.dice.below(self.pulls)
        } else {
            self.pulls + 1
        };
        self.pulls = self.pulls.max(number);
        self.repository.set("refs/heads/pr-work", "refs/heads/keep");
        let count = 1 + self.dice.below(2);
        self.commits("pr-work", count);
        self.repository.set(&format!("refs/pull/{number}/head"), "refs/heads/pr-work");
        self.repository.delete("refs/heads/pr-work");
        self.say(format!("pull request {number}"));
    }

    fn force(&mut self) {
        let heads = self.refs("refs/heads");
        let branch = self.dice.pick(&heads).clone();
        let back = format!("{branch}~{}", 1 + self.dice.below(3));
        if self.repository.exists(&back) {
            self.repository.set(&branch, &back);
            self.say(format!("{branch} back to {back}"));
            if self.dice.chance(70) {
                self.commits(branch.trim_start_matches("refs/heads/"), 1);
            }
        }
    }

    fn delete(&mut self) {
        let mut refs = self.refs("refs/heads");
        refs.extend(self.refs("refs/tags"));
        refs.retain(|name| name != "refs/heads/keep");
        if !refs.is_empty() {
            let name = self.dice.pick(&refs).clone();
            self.repository.delete(&name);
            self.say(format!("delete {name}"));
        }
    }

    fn head(&mut self) {
        let heads = self.refs("refs/heads");
        let head = self.dice.pick(&heads).trim_start_matches("refs/heads/").to_owned();
        match self.dice.below(6) {
            0 => self.repository.set_head("not-there"),
            1 => drop(self.repository.git(&[
                "update-ref",
                "--no-deref",
                "HEAD",
                &format!("refs/heads/{head}"),
            ])),
            _ => self.repository.set_head(&head),
        }
        self.say(format!("HEAD by {head}"));
    }

    fn note(&mut self) {
        self.repository.git(&[
            "notes",
            "--ref=deploy",
            "add",
            "-f",
            "-m",
            &format!("{}", self.turn),
            "refs/heads/keep",
        ]);
        self.say("note".to_owned());
    }

    fn orphan(&mut self) {
        let branch = self.branch();
        let full = format!("refs/heads/{branch}");
        if self.repository.exists(&full) {
            self.repository.delete(&full);
        }
        self.say(format!("orphan {branch}"));
        self.commits(&branch, 2);
    }

    fn branch_off(&mut self) {
        let branch = self.branch();
        if let Some(commit) = self.any_commit() {
            self.repository.set(&format!("refs/heads/{branch}"), &commit);
            self.say(format!("{branch} at {commit}"));
        }
    }
}
