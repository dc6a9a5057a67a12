//! Collects the pictures of a page, which show the numbers of its tables.

use weir_console::chart::{DotPlot, DotRow, DotSeries, Scale};

/// A page in Markdown, and the pictures that it shows.
pub struct Page {
    /// The text. It refers to pictures in the folder [`PICTURE_FOLDER`](crate::PICTURE_FOLDER).
    pub text: String,
    /// The pictures.
    pub pictures: Vec<Picture>,
}

/// The folder of the pictures, next to the page.
pub const FOLDER: &str = "figures";

/// A picture of a page.
pub struct Picture {
    /// The name of its file.
    pub file_name: String,
    /// The picture as SVG.
    pub svg: String,
    /// The paragraphs of the page that show it, and the empty line before them.
    markdown: String,
}

impl Page {
    /// The text without the parts that show pictures.
    pub fn text_without_pictures(&self) -> String {
        self.pictures.iter().fold(self.text.clone(), |text, picture| text.replace(&picture.markdown, ""))
    }
}

/// The pictures of a page under construction.
pub(crate) struct Pictures {
    page: &'static str,
    list: Vec<Picture>,
}

impl Pictures {
    /// No pictures yet. `page` starts the names of their files.
    pub fn new(page: &'static str) -> Pictures {
        Pictures { page, list: Vec::new() }
    }

    /// Adds a picture, and returns the paragraphs that show it; empty without a picture. `alternative` is for readers who do not see
    /// it, and `caption` says what its parts are.
    pub fn add(&mut self, name: &str, alternative: &str, caption: &str, svg: Option<String>) -> String {
        let Some(svg) = svg else { return String::new() };
        let file_name = format!("{}-{name}.svg", self.page);
        let paragraphs = format!("![{alternative}]({FOLDER}/{file_name})\n\n*{caption}*");
        self.list.push(Picture { file_name, svg, markdown: format!("\n\n{paragraphs}") });
        paragraphs + "\n\n"
    }

    /// The page with this text.
    pub fn finish(self, text: String) -> Page {
        Page { text, pictures: self.list }
    }
}

/// A plot of published values next to measured ones.
pub(crate) fn published_next_to_measured(
    title: &str,
    scale: Scale,
    reference: Option<f64>,
    rows: Vec<DotRow>,
) -> Option<String> {
    let series = vec![DotSeries::published("published"), DotSeries::measured("measured")];
    DotPlot { title, scale, reference, series, rows }.to_svg()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_without_pictures_is_the_text_before_they_were_added() {
        let mut pictures = Pictures::new("saath");
        let shown = pictures.add("speedups", "Speedups", "Hollow: published.", Some("<svg/>".to_owned()));
        assert_eq!(pictures.add("none", "None", "None.", None), "");
        let page = pictures.finish(format!("# Page\n\n| a |\n\n{shown}## Next\n"));
        assert!(page.text.contains("![Speedups](figures/saath-speedups.svg)\n\n*Hollow: published.*\n"));
        assert_eq!(page.text_without_pictures(), "# Page\n\n| a |\n\n## Next\n");
        assert_eq!(page.pictures.len(), 1);
        // The last picture of a page, whose empty lines at the end are removed.
        let text = format!("# Page\n\n{}\n", shown.trim_end());
        assert_eq!(Page { text, ..page }.text_without_pictures(), "# Page\n");
    }
}
