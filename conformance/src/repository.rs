//! A bare repository under the test's hands: every commit has a fixed author,
//! and its date follows from how many came before it.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

const FIRST_DATE: u64 = 1_700_000_000;

/// A bare repository on disk.
#[derive(Debug)]
pub struct Repository {
    path: PathBuf,
    clock: AtomicU64,
}

impl Repository {
    /// Makes an empty one whose HEAD is `refs/heads/main`.
    pub fn create(path: &Path) -> Self {
        Self::init(path, "sha1")
    }

    /// Makes an empty one with this object format.
    pub fn init(path: &Path, format: &str) -> Self {
        fs::create_dir_all(path).expect("the repository's folder");
        let repository = Self { path: path.to_owned(), clock: AtomicU64::new(FIRST_DATE) };
        let format = format!("--object-format={format}");
        repository.git(&["init", "--quiet", "--bare", "--initial-branch=main", &format]);
        repository.git(&["config", "gc.auto", "0"]);
        repository
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs git in it; fails the test if git does.
    pub fn git<S: AsRef<OsStr>>(&self, arguments: &[S]) -> String {
        self.feed(arguments, b"")
    }

    /// As [`Repository::git`], with something on standard input.
    pub fn feed<S: AsRef<OsStr>>(&self, arguments: &[S], input: &[u8]) -> String {
        let output = self.run(arguments, input);
        let words: Vec<_> = arguments.iter().map(|word| word.as_ref().to_string_lossy()).collect();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "git {words:?} in {}: {stderr}", self.path.display());
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    fn run<S: AsRef<OsStr>>(&self, arguments: &[S], input: &[u8]) -> Output {
        let date = format!("{} +0000", self.clock.load(Ordering::Relaxed));
        let mut child = Command::new("git")
            .current_dir(&self.path)
            .args(arguments)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/nonexistent/gitconfig")
            .env("HOME", "/nonexistent")
            .env("LC_ALL", "C")
            .env("GIT_AUTHOR_NAME", "Ada")
            .env("GIT_AUTHOR_EMAIL", "ada@example.test")
            .env("GIT_COMMITTER_NAME", "Ada")
            .env("GIT_COMMITTER_EMAIL", "ada@example.test")
            .env("GIT_AUTHOR_DATE", &date)
            .env("GIT_COMMITTER_DATE", &date)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("git starts");
        let mut stdin = child.stdin.take().expect("stdin is piped");
        std::thread::scope(|scope| {
            scope.spawn(move || stdin.write_all(input));
            child.wait_with_output().expect("git ends")
        })
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(60, Ordering::Relaxed) + 60
    }

    /// Commits `files` on top of `branch` and moves it; the new commit's id.
    pub fn commit(&self, branch: &str, message: &str, files: &[(&str, &str)]) -> String {
        let name = format!("refs/heads/{branch}");
        let mut stream = self.head_of_commit(&name, message);
        if self.exists(&name) {
            let _ = writeln!(stream, "from {name}^0");
        }
        self.import(&(stream + &modifications(files)));
        self.resolve(&name)
    }

    /// A commit on `branch` whose further parents are `others`.
    pub fn merge(&self, branch: &str, others: &[&str], message: &str) -> String {
        let name = format!("refs/heads/{branch}");
        let mut stream = self.head_of_commit(&name, message);
        let _ = writeln!(stream, "from {name}^0");
        for other in others {
            let _ = writeln!(stream, "merge {}", self.resolve(other));
        }
        self.import(&(stream + &modifications(&[("merged.txt", message)])));
        self.resolve(&name)
    }

    /// A commit without parents on a branch of its own.
    pub fn orphan(&self, branch: &str, message: &str, files: &[(&str, &str)]) -> String {
        let name = format!("refs/heads/{branch}");
        self.git(&["update-ref", "-d", &name]);
        self.commit(branch, message, files)
    }

    fn head_of_commit(&self, name: &str, message: &str) -> String {
        let date = self.tick();
        format!(
            "commit {name}\ncommitter Ada <ada@example.test> {date} +0000\ndata {}\n{message}\n",
            message.len()
        )
    }

    /// Feeds a fast-import stream.
    pub fn import(&self, stream: &str) {
        self.feed(&["fast-import", "--quiet", "--force"], stream.as_bytes());
    }

    /// Points `name` at `target` (an id or anything git resolves).
    pub fn set(&self, name: &str, target: &str) {
        self.git(&["update-ref", name, target]);
    }

    /// Deletes a ref.
    pub fn delete(&self, name: &str) {
        self.git(&["update-ref", "-d", name]);
    }

    /// Points HEAD at a branch, which need not exist.
    pub fn set_head(&self, branch: &str) {
        self.git(&["symbolic-ref", "HEAD", &format!("refs/heads/{branch}")]);
    }

    /// An annotated tag of any object; the tag's id.
    pub fn annotate(&self, name: &str, target: &str) -> String {
        let target = self.resolve(target);
        let kind = self.git(&["cat-file", "-t", &target]);
        let date = self.tick();
        let body = format!(
            "object {target}\ntype {kind}\ntag {name}\ntagger Ada <ada@example.test> {date} +0000\n\n{name}\n"
        );
        let oid = self.write_object("tag", body.as_bytes());
        self.set(&format!("refs/tags/{name}"), &oid);
        oid
    }

    /// Writes an object as it is, however odd; its id.
    pub fn write_object(&self, kind: &str, body: &[u8]) -> String {
        self.feed(&["hash-object", "-t", kind, "-w", "--literally", "--stdin"], body)
    }

    /// The id behind a name.
    pub fn resolve(&self, name: &str) -> String {
        self.git(&["rev-parse", "--verify", name])
    }

    /// Whether a ref exists.
    pub fn exists(&self, name: &str) -> bool {
        self.run(&["rev-parse", "--verify", "--quiet", name], b"").status.success()
    }

    /// Throws away what no ref reaches.
    pub fn prune(&self) {
        self.git(&["reflog", "expire", "--expire=now", "--all"]);
        self.git(&["gc", "--quiet", "--prune=now"]);
    }

    /// How many objects everything reachable makes.
    pub fn objects(&self) -> usize {
        self.git(&["rev-list", "--objects", "--all"]).lines().count()
    }
}

fn modifications(files: &[(&str, &str)]) -> String {
    let mut stream = String::new();
    for (path, text) in files {
        let _ = writeln!(stream, "M 644 inline {path}\ndata {}\n{text}", text.len());
    }
    stream
}
