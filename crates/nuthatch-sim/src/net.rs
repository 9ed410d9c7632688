//! A network of directed links that lose, delay, reorder and repeat messages.

use crate::rng::Rng;

/// How bad a network is. Chances are per mille, times are in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Weather {
    /// Messages that are lost.
    pub loss: u64,
    /// Messages that come twice.
    pub repeat: u64,
    /// Messages that come late, by up to `late_max`.
    pub late: u64,
    /// The longest that a late message takes.
    pub late_max: u64,
    /// The shortest time that a message takes.
    pub delay_min: u64,
    /// The longest time that other messages take: they pass each other within this.
    pub delay_max: u64,
}

impl Weather {
    /// A network that works.
    pub const FINE: Self =
        Self { loss: 0, repeat: 0, late: 0, late_max: 0, delay_min: 100, delay_max: 300 };

    /// The weather of a seed.
    pub fn drawn(rng: &mut Rng) -> Self {
        let some = |rng: &mut Rng, most| if rng.chance(500) { rng.below(most) } else { 0 };
        Self {
            loss: some(rng, 150),
            repeat: some(rng, 100),
            late: some(rng, 100),
            late_max: rng.between(50_000, 3_000_000),
            delay_min: 100,
            delay_max: rng.between(200, 20_000),
        }
    }
}

/// Links between nodes, numbered from 0.
#[derive(Clone, Debug)]
pub struct Net {
    nodes: usize,
    up: Vec<bool>,
    connection: Vec<u32>,
    /// How bad the network is at present.
    pub weather: Weather,
}

/// When the copies of a message arrive, of which there are two at most.
pub type Arrivals = std::iter::Take<std::array::IntoIter<u64, 2>>;

impl Net {
    /// A network in which every link is up.
    #[must_use]
    pub fn new(nodes: usize, weather: Weather) -> Self {
        Self { nodes, up: vec![true; nodes * nodes], connection: vec![0; nodes * nodes], weather }
    }

    fn link(&self, from: usize, to: usize) -> usize {
        from * self.nodes + to
    }

    /// Cuts or mends the link in one direction.
    pub fn set(&mut self, from: usize, to: usize, up: bool) {
        let link = self.link(from, to);
        self.up[link] = up;
    }

    /// True if the link in one direction is up.
    #[must_use]
    pub fn is_up(&self, from: usize, to: usize) -> bool {
        self.up[self.link(from, to)]
    }

    /// Sets all links between different nodes by the bits of `pattern`, the link from 0 to 1 first.
    pub fn set_pattern(&mut self, pattern: u64) {
        let mut bit = 0;
        for from in 0..self.nodes {
            for to in (0..self.nodes).filter(|to| *to != from) {
                let link = from * self.nodes + to;
                self.up[link] = (pattern >> bit) & 1 == 1;
                bit += 1;
            }
        }
    }

    /// Mends everything.
    pub fn heal(&mut self) {
        self.up.fill(true);
    }

    /// Resets the connections between two nodes; what is on its way may still come.
    pub fn reset(&mut self, a: usize, b: usize) {
        for link in [self.link(a, b), self.link(b, a)] {
            self.connection[link] += 1;
        }
    }

    /// The number of the connection from one node to another.
    #[must_use]
    pub fn connection(&self, from: usize, to: usize) -> u32 {
        self.connection[self.link(from, to)]
    }

    /// After how long the copies of a message sent now arrive.
    pub fn send(&self, from: usize, to: usize, rng: &mut Rng) -> Arrivals {
        let weather = self.weather;
        let mut arrivals = [0; 2];
        if !self.is_up(from, to) || rng.chance(weather.loss) {
            return arrivals.into_iter().take(0);
        }
        let copies = if rng.chance(weather.repeat) { 2 } else { 1 };
        for arrival in &mut arrivals[..copies] {
            let late = if rng.chance(weather.late) { rng.below(weather.late_max + 1) } else { 0 };
            *arrival = rng.between(weather.delay_min, weather.delay_max) + late;
        }
        arrivals.into_iter().take(copies)
    }
}
