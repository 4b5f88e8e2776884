//! Reads what `/metrics` says.

/// The sum of all samples of `name` whose labels include all of `labels`.
pub fn sum(exposition: &str, name: &str, labels: &[(&str, &str)]) -> f64 {
    let wanted: Vec<String> = labels.iter().map(|(key, value)| format!("{key}=\"{value}\"")).collect();
    exposition
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(sample)
        .filter(|(found, text, _)| *found == name && wanted.iter().all(|label| text.contains(label.as_str())))
        .map(|(_, _, value)| value)
        .sum()
}

fn sample(line: &str) -> Option<(&str, &str, f64)> {
    let (series, value) = line.rsplit_once(' ')?;
    let (name, labels) = series.split_once('{').unwrap_or((series, ""));
    Some((name, labels, value.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_summed_over_the_labels_not_named() {
        let text = "# TYPE a counter\na_total{k=\"x\",s=\"200\"} 3\na_total{k=\"x\",s=\"500\"} 1\na_total{k=\"y\",s=\"200\"} 9\n";
        assert!((sum(text, "a_total", &[("k", "x")]) - 4.0).abs() < f64::EPSILON);
        assert!((sum(text, "a_total", &[("s", "200")]) - 12.0).abs() < f64::EPSILON);
    }
}
