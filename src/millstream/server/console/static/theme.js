// Before the page is drawn: the theme that was chosen; without one, that of the system.
const chosen = localStorage.getItem("millstream.theme");
if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
