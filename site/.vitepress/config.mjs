// The site: docs and the Markdown at the root of the repository, as pages. `npm ci --ignore-scripts && npm run build` writes .vitepress/dist,
// and fails if a link or an anchor leads nowhere.
//
//   SITE_VERSION  the tag that it is built from; without, it is the site of main
//   SITE_BASE     its path at the host, such as /v0.1.0/; /
//   SITE_URL      the address of the host, for links to the versions in versions.json, and from each of them to main
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vitepress'
import { copyLinked, dead, writeIndex } from './built.mjs'
import { about, diagrams, excluded, fileOf, pageOf, relinked, repository, root, sections, slug, version } from './source.mjs'

const base = process.env.SITE_BASE ?? '/'
const host = process.env.SITE_URL ?? ''
const versions = JSON.parse(readFileSync(new URL('../versions.json', import.meta.url), 'utf8')).filter((other) => other !== version)
if ((versions.length > 0 || version) && !host) throw new Error('SITE_URL is needed to link to other versions')
const icon = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><path fill="none" stroke="#3451b2" stroke-width="2" d="M8 15V8a3.5 3.5 0 1 1 3.5-3.5"/></svg>'
const api = 'https://pkg.go.dev/github.com/bowline-mcp/bowline'

// Pages are outside of this folder: what they import is found here.
const installed = {
  name: 'installed',
  enforce: 'pre',
  resolveId(id, from, options) {
    if (/^vue(\/|$)/.test(id)) return this.resolve(id, fileURLToPath(import.meta.url), { ...options, skipSelf: true })
  },
}

export default defineConfig({
  title: 'Bowline',
  lang: 'en',
  base,
  head: [['link', { rel: 'icon', href: `data:image/svg+xml,${encodeURIComponent(icon)}` }]],
  srcDir: root,
  srcExclude: excluded,
  rewrites: pageOf,
  ignoreDeadLinks: 'localhostLinks', // examples
  markdown: {
    anchor: { slugify: slug },
    headers: { slugify: slug },
    config(md) {
      relinked(md)
      diagrams(md)
    },
  },
  vite: { plugins: [installed], build: { chunkSizeWarningLimit: 2000 } }, // kB: the index of the search
  transformPageData(page) {
    if (page.relativePath !== '404.md') page.description = about(fileOf(page.relativePath)).sentence
  },
  themeConfig: {
    nav: [
      { text: 'Documentation', link: '/docs/', activeMatch: '^/docs/' },
      { text: 'API', link: version ? `${api}@${version}` : api },
      {
        text: version || 'main',
        items: [
          ...(version ? [{ text: 'main', link: `${host}/`, target: '_self', rel: '' }] : []),
          ...versions.map((other) => ({ text: other, link: `${host}/${other}/`, target: '_self', rel: '' })),
          { text: 'Changelog', link: '/CHANGELOG.md' },
        ],
      },
    ],
    sidebar: sections(),
    outline: [2, 3],
    search: { provider: 'local' },
    socialLinks: [{ icon: 'github', link: repository }],
    editLink: { pattern: `${repository}/edit/main/:path`, text: 'Edit this page' },
  },
  buildEnd({ outDir }) {
    writeIndex(outDir, base)
    copyLinked(outDir)
    const { bad, followed, pages } = dead(outDir, base)
    if (bad.length > 0) throw new Error(`${bad.length} dead links:\n${bad.join('\n')}`)
    console.log(`${pages} pages, ${followed} links between them`)
  },
})
