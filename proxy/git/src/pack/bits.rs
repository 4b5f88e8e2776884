//! A fixed set of small numbers: objects of a pack set, nodes of a graph.

/// One bit for each number below a length given once.
#[derive(Clone, Debug)]
pub(super) struct Bits(Vec<u64>);

impl Bits {
    /// The empty set over `0..length`.
    pub(super) fn new(length: u32) -> Self {
        Self(vec![0; (length as usize).div_ceil(64)])
    }

    /// The set of `numbers`, all below `length`.
    pub(super) fn of<'a>(length: u32, numbers: impl IntoIterator<Item = &'a u32>) -> Self {
        let mut bits = Self::new(length);
        for &number in numbers {
            bits.insert(number);
        }
        bits
    }

    /// Whether `number` is in the set.
    pub(super) fn holds(&self, number: u32) -> bool {
        self.0.get((number >> 6) as usize).is_some_and(|word| word >> (number & 63) & 1 == 1)
    }

    /// Puts `number` into the set; true if it wasn't there. Out of range: false.
    pub(super) fn insert(&mut self, number: u32) -> bool {
        let mask = 1u64 << (number & 63);
        match self.0.get_mut((number >> 6) as usize) {
            Some(word) if *word & mask == 0 => {
                *word |= mask;
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_goes_in_once_and_stays() {
        let mut bits = Bits::new(65);
        assert!(!bits.holds(64));
        assert!(bits.insert(64));
        assert!(!bits.insert(64));
        assert!(bits.holds(64) && !bits.holds(63));
    }

    #[test]
    fn a_number_out_of_range_is_never_in() {
        let mut bits = Bits::new(0);
        assert!(!bits.insert(7) && !bits.holds(7));
    }
}
