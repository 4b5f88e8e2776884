//! Random histories, as a stream for `git fast-import`.

use std::fmt::Write;

use super::fixture::Dice;

/// `commits` commits with branches, merges, octopuses, several roots and annotated tags.
pub(super) fn random(seed: u64, commits: usize) -> String {
    let mut history = History { dice: Dice::new(seed), stream: String::new(), leaves: Vec::new() };
    for mark in 1..=commits {
        history.commit(mark);
    }
    history.refs();
    history.stream
}

struct History {
    dice: Dice,
    stream: String,
    /// Whether each commit is still nobody's parent.
    leaves: Vec<bool>,
}

impl History {
    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        self.stream.write_fmt(line).unwrap();
        self.stream.push('\n');
    }

    fn commit(&mut self, mark: usize) {
        let time = 1_000_000 + mark * 100 + self.dice.roll(90);
        self.line(format_args!("commit refs/loose/{mark}\nmark :{mark}"));
        self.line(format_args!("committer n <e> {time} +0000\ndata 1\nx"));
        let roots = mark == 1 || self.dice.roll(25) == 0;
        let parents = if roots { 0 } else { [1, 1, 1, 1, 2, 2, 3][self.dice.roll(7)] };
        let mut chosen: Vec<usize> = Vec::new();
        for _ in 0..parents {
            let far = if self.dice.roll(4) == 0 { mark - 1 } else { 4.min(mark - 1) };
            let parent = mark - 1 - self.dice.roll(far);
            if !chosen.contains(&parent) {
                self.line(format_args!("{} :{parent}", if chosen.is_empty() { "from" } else { "merge" }));
                self.leaves[parent - 1] = false;
                chosen.push(parent);
            }
        }
        self.leaves.push(true);
        for _ in 0..=self.dice.roll(3) {
            self.file(mark);
        }
    }

    /// A file much like others, so that deltas are worth while.
    fn file(&mut self, mark: usize) {
        let (folder, file) = (self.dice.roll(3), self.dice.roll(5));
        let path =
            ["top".to_owned(), format!("d{folder}"), format!("d{folder}/deep/er")][self.dice.roll(3)].clone();
        let mut text = format!("file {file}\n");
        for line in 0..40 {
            let turn = if self.dice.roll(20) == 0 { mark } else { 0 };
            writeln!(text, "line {line} of a file {turn}").unwrap();
        }
        self.line(format_args!("M 100644 inline {path}/f{file}\ndata {}\n{text}", text.len()));
    }

    fn refs(&mut self) {
        for (at, leaf) in self.leaves.clone().into_iter().enumerate() {
            let mark = at + 1;
            if leaf || self.dice.roll(12) == 0 {
                self.line(format_args!("reset refs/heads/b{mark}\nfrom :{mark}\n"));
            }
            if self.dice.roll(8) == 0 {
                self.line(format_args!("tag v{mark}\nfrom :{mark}\ntagger n <e> 1000000 +0000\ndata 1\nx"));
            }
            self.line(format_args!(
                "reset refs/loose/{mark}\nfrom 0000000000000000000000000000000000000000\n"
            ));
        }
    }
}
