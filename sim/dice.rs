//! The random source of the world. It shares nothing with the core's generator: a fault in one must
//! not hide in the other.

use steplet_core::time::Span;

/// A multiply-with-carry generator; each part of the world rolls its own child.
#[derive(Clone, Debug)]
pub struct Dice {
    low: u64,
    carry: u64,
}

const FACTOR: u128 = 0xffeb_b71d_94fc_daf9;

impl Dice {
    pub fn new(seed: u64) -> Dice {
        let mut dice = Dice { low: seed ^ 0x2545_f491_4f6c_dd1d, carry: 0x9fb2_1c65_1e98_df25 };
        for _ in 0..8 {
            dice.draw();
        }
        dice
    }

    /// A generator of its own, so that more draws here do not shift the draws there.
    pub fn child(&self, salt: u64) -> Dice {
        let mut dice = Dice { low: self.low ^ (salt << 17), carry: self.carry.wrapping_add(salt) };
        for _ in 0..8 {
            dice.draw();
        }
        dice
    }

    pub fn draw(&mut self) -> u64 {
        let out = self.low ^ (self.carry << 32) ^ (self.carry >> 32);
        let next = u128::from(self.low) * FACTOR + u128::from(self.carry);
        self.low = next as u64;
        self.carry = (next >> 64) as u64;
        out
    }

    /// Uniform in `0..bound`; 0 when the bound is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(bound)) >> 64) as u64
    }

    /// Uniform in `low..=high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// True in `percent` of a hundred cases.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub fn span(&mut self, low: Span, high: Span) -> Span {
        Span(self.between(low.0, high.0))
    }

    pub fn millis(&mut self, low: u64, high: u64) -> Span {
        self.span(Span::from_millis(low), Span::from_millis(high))
    }

    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len() as u64) as usize]
    }

    /// `len` lower-case hexadecimal digits.
    pub fn hex(&mut self, len: usize) -> String {
        (0..len).map(|_| char::from(b"0123456789abcdef"[self.below(16) as usize])).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_roll_equal_numbers_and_children_differ() {
        let (mut a, mut b) = (Dice::new(7), Dice::new(7));
        let rolls: Vec<u64> = (0..100).map(|_| a.draw()).collect();
        assert_eq!(rolls, (0..100).map(|_| b.draw()).collect::<Vec<_>>());
        assert_ne!(a.child(1).draw(), a.child(2).draw());
    }

    #[test]
    fn bounds_hold_and_every_face_comes_up() {
        let mut dice = Dice::new(1);
        let mut seen = [0; 6];
        for _ in 0..6_000 {
            seen[dice.below(6) as usize] += 1;
            assert!((3..=5).contains(&dice.between(3, 5)));
        }
        assert!(seen.iter().all(|n| (800..1_200).contains(n)), "{seen:?}");
        assert_eq!(dice.below(0), 0);
    }
}
