//! Draws the legend of an image, above its chart.

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::line_style::draw_sample;
use super::{Area, DARK, Drawn, Shape, WIDTH, draw_mark, text_style, text_width};

/// Pixels between two lines of a legend.
const LINE_HEIGHT: i32 = 20;

/// Pixels of the sample of a line or mark.
const SAMPLE_WIDTH: i32 = 28;

/// What a legend shows next to a name.
#[derive(Debug, Clone, Copy)]
pub enum Sample {
    /// The line at a position.
    Line(usize),
    /// A mark.
    Mark(Shape, RGBColor),
}

/// The names of lines and marks.
#[derive(Debug, Default)]
pub struct Legend {
    items: Vec<(Sample, String)>,
}

impl Legend {
    /// Adds a name.
    pub fn add(&mut self, sample: Sample, name: &str) {
        self.items.push((sample, name.to_owned()));
    }

    /// The place of each item.
    fn places(&self) -> Vec<(i32, i32)> {
        let (mut x, mut y) = (12, 14);
        let place = |(_, name): &(Sample, String)| {
            let width = SAMPLE_WIDTH + text_width(name) + 18;
            if x > 12 && x + width > WIDTH as i32 {
                (x, y) = (12, y + LINE_HEIGHT);
            }
            let place = (x, y);
            x += width;
            place
        };
        self.items.iter().map(place).collect()
    }

    /// The height in pixels; 0 without names.
    pub fn height(&self) -> i32 {
        self.places().last().map_or(0, |(_, y)| y + LINE_HEIGHT / 2)
    }

    /// Draws the legend at the top of an image, except for its dashed lines, which are appended to `dashed_lines` as SVG.
    pub fn draw(&self, area: &Area<'_>, dashed_lines: &mut String) -> Drawn {
        let style = text_style(DARK, HPos::Left);
        for ((sample, name), (x, y)) in self.items.iter().zip(self.places()) {
            match sample {
                Sample::Line(position) => {
                    draw_sample(area, (x, y), SAMPLE_WIDTH - 6, *position, dashed_lines)?
                }
                Sample::Mark(shape, color) => draw_mark(area, (x + SAMPLE_WIDTH / 2 - 3, y), *shape, *color)?,
            }
            area.draw(&Text::new(name.as_str(), (x + SAMPLE_WIDTH, y), style.clone()))?;
        }
        Ok(())
    }
}
