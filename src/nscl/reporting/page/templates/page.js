// The page: its theme, what is set up in each section, and the live reload.

const root = document.documentElement;
const themeButton = document.getElementById("theme");

const systemDark = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : systemDark.matches);
const nameTheme = () => { themeButton.textContent = isDark() ? "Light" : "Dark"; };

function setUpTheme() {
  const chosen = remembered("theme");
  if (chosen) root.dataset.theme = chosen;
  nameTheme();
  systemDark.addEventListener("change", nameTheme);
  themeButton.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    remembered("theme", root.dataset.theme);
    nameTheme();
  });
}

function setUpLive() {
  const live = document.querySelector('meta[name="nscl-live"]');
  if (!live) return;
  const place = remembered("place");
  if (place) scrollTo(0, Number(place));
  setInterval(async () => {
    try {
      const answer = await fetch("version", { cache: "no-store" });
      if (answer.ok && (await answer.text()) !== live.content) {
        remembered("place", String(scrollY));
        location.reload();
      }
    } catch {
      document.querySelector(".live").textContent = "the server has stopped";
    }
  }, 2000);
}

setUpTheme();
for (const section of document.querySelectorAll("[data-section]")) {
  setUpTable(section);
  setUpCommands(section);
  setUpDetails(section);
  const redraws = [];
  const hidden = setUpLegend(section, () => redraws.forEach((redraw) => redraw()));
  for (const figure of section.querySelectorAll("[data-chart]")) redraws.push(setUpChart(section, figure, hidden));
  setUpPair(section, pairs[section.dataset.section]);
}
setUpLive();
