"""Reports: views of suites, formats to print them in, figures, pages and the dashboard."""
